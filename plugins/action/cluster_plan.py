"""Checks Ansible's settings and the inventory, and computes the cluster plan from it."""

from pathlib import Path
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.utils.vars import load_extra_vars

from psfleet.inventory.ansible_inventory import plain_inventory, role_variables
from psfleet.inventory.definitions import Definitions
from psfleet.inventory.described_systems import described_systems
from psfleet.inventory.inventory_files import unused_files
from psfleet.inventory.problems import InventoryError, describe
from psfleet.run.cluster_facts import cluster_facts
from psfleet.run.person import person
from psfleet.run.table_bytes import with_files_to_edit

from ..module_utils.content_directory import content_hash
from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.ansible_settings import settings_problem

ROOT = Path(__file__).resolve().parents[2]


class ActionModule(ControllerAction):
    """Returns the facts `cluster_*` of docs/contracts.md; fails with all problems of the inventory."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if problem := settings_problem():
            return self._failure(problem)
        command_line = load_extra_vars(self._loader)
        sources = self.variables["ansible_inventory_sources"]
        for sentence in unused_files(sources, self.variables["groups"], role_variables()):
            self._display.warning(sentence)
        try:
            inventory = plain_inventory(self.variables, self._loader, command_line)
            facts = cluster_facts(inventory, str(arguments.get("proof", "")))
            facts["cluster_systems"] = described_systems()
        except InventoryError as error:
            return self._failure(describe(error.problems, self._definitions(command_line).cure))
        if tables := facts["cluster_data"]["tables"]:
            facts["cluster_data"]["tables"] = with_files_to_edit(tables, self._definitions(command_line).cure)
        return facts | {
            "cluster_release": content_hash(ROOT / "trainer"),
            "cluster_person": person(),
        }

    def _definitions(self, command_line: dict[str, Any]) -> Definitions:
        sources = self.variables["ansible_inventory_sources"]
        read = InventoryManager(self._loader, sources)
        return Definitions(sources, read, self._loader, command_line)

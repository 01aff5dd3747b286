"""Computes the cluster plan from the inventory, or fails with every problem of the inventory."""

from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from psfleet.inventory.ansible_inventory import plain_inventory
from psfleet.inventory.definitions import Definitions
from psfleet.inventory.problems import InventoryError, describe
from psfleet.run.cluster_facts import cluster_facts
from psfleet.run.person import person
from trainer.host.content_directory import content_hash

from ..plugin_utils.actions import ControllerAction

ROOT = Path(__file__).resolve().parents[2]


class ActionModule(ControllerAction):
    """Argument `proof`: the replication of a run of prove.yml, "" for what the inventory trains.

    Returns the facts that docs/contracts.md describes, or fails with every problem.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        command_line = load_extra_vars(self._loader)
        try:
            inventory = plain_inventory(self.variables, self._loader, command_line)
            facts = cluster_facts(inventory, str(arguments.get("proof", "")))
        except InventoryError as error:
            read, sources = self.variables["hostvars"]._inventory, self.variables["ansible_inventory_sources"]
            definitions = Definitions(sources, read, self._loader, command_line)
            return self._failure(describe(error.problems, definitions.cure))
        return facts | {
            "cluster_release": content_hash(ROOT / "trainer"),
            "cluster_person": person(),
        }

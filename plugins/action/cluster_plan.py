"""Make the cluster plan of the inventory, or fail with everything that is wrong with it."""

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from psfleet.inventory.ansible_inventory import plain_inventory, sources_of
from psfleet.inventory.definitions import Definitions
from psfleet.inventory.problems import InventoryError, describe
from psfleet.run.cluster_facts import cluster_facts


class ActionModule(ActionBase):
    """Argument `proof`: the replication of a run of the proof by partition, "" for what the inventory trains.

    It reaches no host.
    """

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts that docs/contracts.md describes, or fail with every problem."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        command_line = load_extra_vars(self._loader)
        try:
            inventory = plain_inventory(variables, self._loader, command_line)
            facts = cluster_facts(inventory, str(self._task.args.get("proof", "")))
        except InventoryError as error:
            read = variables["hostvars"]._inventory
            definitions = Definitions(sources_of(variables), read, self._loader, command_line)
            return result | {"failed": True, "msg": describe(error.problems, definitions.cure)}
        return result | facts | {"changed": False}

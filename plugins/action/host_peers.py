"""Makes hosts listen, or connect to each other. A host without an answer has a reason, and does not fail."""

from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask

# Seconds for a round of hosts to answer. All hosts must listen before the first one connects.
SECONDS_OF_A_ROUND = 60


class ActionModule(HostAction):
    """Argument: `state`, as of the step. Returns its answer under that name, and `problem` (or "")."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        host, hosts = (self.variables[name] for name in ("inventory_hostname", "ansible_play_hosts_all"))
        rounds = 1 + len(hosts) // int(self.variables["ansible_forks"])
        of = {host} if arguments["state"] == "listening" else set(hosts)
        arguments |= {
            "host": host,
            "tasks": [task for task in self.variables["cluster_plan"]["tasks"] if task["host"] in of],
            "seconds": SECONDS_OF_A_ROUND * (1 + rounds),
        }
        answer, problem = ask(self, "host_peers", arguments)
        return {arguments["state"]: answer, "problem": problem, "_ansible_verbose_override": True}

"""Lists the runs that a host still has. A host without an answer has a reason, and does not fail."""

from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask


class ActionModule(HostAction):
    """Argument: `paths` (`cluster_paths`). Returns `problem` ("" if the host answered), and `runs`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer, problem = ask(self, "host_runs", arguments | {"state": "listed"})
        # The table shows everything; with -v Ansible would print this before it.
        return {"problem": problem, "runs": answer.get("runs", []), "_ansible_verbose_override": True}

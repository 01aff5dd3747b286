"""Run several modules on a host in as few round trips as the archives allow that it needs."""

from typing import Any

from ..plugin_utils.carrying import StepsAction


class ActionModule(StepsAction):
    """Argument `steps`, as StepsAction has them.

    Returns `changed_steps` (the names of those that changed something), and as facts of the host the answers
    of those that name one. Fails with the first that fails (`failed_step`); what came before it stays.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._took(arguments["steps"])

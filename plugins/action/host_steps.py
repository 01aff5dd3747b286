"""Runs several steps on a host, in as few round trips as their archives permit."""

from typing import Any

from ..plugin_utils.carrying import StepsAction


class ActionModule(StepsAction):
    """Argument: `steps`, as for StepsAction.

    Returns `changed_steps` (the names of steps that changed something), and the answers of steps with a
    `fact` as facts of the host. Fails with the first step that fails (`failed_step`); changes of the steps
    before it stay.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_steps_and_summarise(arguments["steps"])

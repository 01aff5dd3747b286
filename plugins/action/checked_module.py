"""Run one of Ansible's own modules on a host, and look at what it answers as at that of psfleet's."""

from typing import Any

from ..plugin_utils.actions import HostAction


class ActionModule(HostAction):
    """Arguments: `name` (whole) and `arguments`. Returns of its answer what host_answers.py keeps."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_module(arguments["arguments"], arguments["name"])

"""Computes the SHA-256 of the controller's files that are carried to hosts, once for all hosts."""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.carried_manifest import manifest_path, write_manifest
from psfleet.carry.own_cache import own_cache
from psfleet.watch.terminal import escaping_display

from ..plugin_utils.actions import ControllerAction

display = escaping_display()


class ActionModule(ControllerAction):
    """Writes the manifest of `sources`, and returns `index`, its path, for the action `carried_files`.

    A file whose size and time have not changed since the last manifest is not read again.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        sources = {str(below): Path(source) for below, source in arguments["sources"].items()}
        try:
            index = manifest_path(sources, own_cache(arguments["cache_directory"]))
            write_manifest(sources, index, display.display, str(arguments.get("only", "")))
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(f"{error}") from error
        return {"index": str(index)}

"""Bring what a run left on one host into the run's folder on the controller."""

import re
import tempfile
from pathlib import Path
from typing import Any

from psfleet.carry.collected_archive import most_packed, shown, unpack
from psfleet.carry.collected_files import Places, allowed_files
from psfleet.carry.long_step import MEGABYTE

from ..plugin_utils.actions import HostAction

# As the module makes it. Any other path is one that a host thought out: fetching it could run commands here.
ARCHIVE = re.compile(r"/var/tmp/psfleet-[A-Za-z0-9_]{8}\.tar\.gz")  # noqa: S108 - on the host


class ActionModule(HostAction):
    """Pack on the host, fetch as the connecting user, unpack, remove the archive from the host.

    Arguments: `run` (of decide_run), `tasks` of the host, and those of `run_archive` but `run_id`. Returns
    `files`, and `left_out`: what stays on the host, each with the reason.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        host = str(self.variables["inventory_hostname"])
        run, tasks = arguments.pop("run"), arguments.pop("tasks")
        arguments["run_id"] = run["id"]
        packed = self._run_module(arguments, "psfleet.cluster.run_archive")
        if packed.get("failed") or packed.get("unreachable") or self._task.check_mode:
            return packed
        path, size = packed["path"], packed["size"]
        if not (isinstance(path, str) and ARCHIVE.fullmatch(path) and isinstance(size, int)):
            (path, size) = shown([path, size])
            return self._failure(f"{host} has packed {path} of {size} bytes; expected {ARCHIVE.pattern}")
        program = run["settings"].get("program") is not None
        lead = str(run["lead"]["name"])
        hosts = [run["lead"]["host"], *(task["host"] for task in run["tasks"])]
        places = Places(Path(run["folder"]), host, hosts, allowed_files(tasks, lead, program=program))
        most_bytes = int(arguments["limit_megabytes"]) * MEGABYTE
        try:
            names, refused = self._brought(packed, places, most_bytes)
        finally:
            remove = self._connection._shell.remove(path)
            self._low_level_execute_command(remove, sudoable=True)
        left_out = [f"{host}: {entry}" for entry in (*shown(packed["left_out"]), *shown(refused))]
        return {"changed": bool(names), "files": names, "left_out": left_out}

    def _brought(
        self, packed: dict[str, Any], places: Places, most_bytes: int
    ) -> tuple[list[str], list[str]]:
        """Fetch and unpack; return the names of the files that came, and what did not with the reason."""
        if packed["size"] > most_packed(most_bytes):
            return [], [f"everything: its archive has {packed['size']} bytes, more than it was asked for"]
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "run.tar.gz"
            self._connection.fetch_file(packed["path"], str(archive))
            return unpack(archive, places, most_bytes)

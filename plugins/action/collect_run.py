"""Bring what a run left on one host into the run's folder on the controller."""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins package is not installed

from plugins.collected_files import Places, allowed_files

MEGABYTE = 1_000_000
# Of names that a host made up, so many are shown.
MOST_REFUSED = 20


class ActionModule(ActionBase):
    """Arguments: `run` (of decide_run), `tasks` of the host, and those of `run_archive` but `run_id`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack on the host, fetch as the connecting user, unpack, remove the archive from the host.

        Returns `files`, and `left_out`: what stays on the host, each with the reason.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        host = str((task_vars or {})["inventory_hostname"])
        arguments = dict(self._task.args)
        run, tasks = arguments.pop("run"), arguments.pop("tasks")
        arguments["run_id"] = run["id"]
        packed: dict[str, Any] = self._execute_module("run_archive", arguments, task_vars=task_vars)
        if packed.get("failed") or packed.get("unreachable") or self._task.check_mode:
            return result | packed
        program = run["settings"].get("program") is not None
        lead = str(run["lead"]["name"])
        hosts = [run["lead"]["host"], *(task["host"] for task in run["tasks"])]
        places = Places(Path(run["folder"]), host, hosts, allowed_files(tasks, lead, program=program))
        try:
            with tempfile.TemporaryDirectory() as directory:
                archive = Path(directory) / "run.tar.gz"
                self._connection.fetch_file(packed["path"], str(archive))
                names, refused = unpack(archive, places, int(arguments["limit_megabytes"]) * MEGABYTE)
        finally:
            self._remove(packed["path"])
        left_out = [f"{host}: {entry}" for entry in (*packed["left_out"], *refused[:MOST_REFUSED])]
        return result | {"changed": bool(names), "files": names, "left_out": left_out}

    def _remove(self, path: str) -> None:
        self._low_level_execute_command(self._connection._shell.remove(path), sudoable=True)


def unpack(archive: Path, places: Places, most_bytes: int) -> tuple[list[str], list[str]]:
    """Write the archive's files where they go; return the names of those, and why others were refused.

    Not more than `most_bytes` are written, whatever the archive holds.
    """
    names, refused = [], []
    with tarfile.open(archive) as stream, places.taken():
        for member in stream:
            place = places.place(member.name) if member.isfile() else None
            content = stream.extractfile(member) if place else None
            if place is None or content is None:
                refused.append(f"{member.name!r}: not a name that this host may bring")
                continue
            most_bytes -= member.size
            if most_bytes < 0:
                refused.append(f"{member.name!r} and what follows: more than the host was asked for")
                break
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("wb") as out:
                    shutil.copyfileobj(content, out)
            except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
                refused.append(f"{member.name!r}: {error.strerror}, of another host")
                continue
            names.append(member.name)
    return names, refused

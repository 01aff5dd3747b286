"""Bring what a run left on one host into the run's folder on the controller."""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

FILE = "[A-Za-z0-9][A-Za-z0-9._-]*"


def members_of(tasks: Iterable[Mapping[str, Any]]) -> re.Pattern[str]:
    """Return what a host with these tasks may bring: their logs and records, the chief's also checkpoints."""
    names = [f"{task['job']}{task['index']}" for task in tasks]
    own = "|".join(re.escape(name) for name in names) or "(?!)"
    checkpoints = f"|checkpoints/{FILE}" if "worker0" in names else ""
    return re.compile(rf"logs/({own})\.out|events/({own})\.jsonl{checkpoints}")


class ActionModule(ActionBase):
    """Arguments: those of the module `run_archive`, `folder` on the controller, `tasks` of the host."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack on the host, fetch as the connecting user, unpack, remove the archive from the host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        folder, allowed = Path(arguments.pop("folder")), members_of(arguments.pop("tasks"))
        packed: dict[str, Any] = self._execute_module("run_archive", arguments, task_vars=task_vars)
        if packed.get("failed") or packed.get("unreachable") or self._task.check_mode:
            return result | packed
        try:
            with tempfile.TemporaryDirectory() as directory:
                archive = Path(directory) / "run.tar.gz"
                self._connection.fetch_file(packed["path"], str(archive))
                names = unpack(archive, folder, allowed)
        finally:
            self._remove(packed["path"])
        return result | {"changed": bool(names), "files": names}

    def _remove(self, path: str) -> None:
        self._low_level_execute_command(self._connection._shell.remove(path), sudoable=True)


def unpack(archive: Path, folder: Path, allowed: re.Pattern[str]) -> list[str]:
    """Write the archive's files of allowed names below `folder`; return their names."""
    names = []
    with tarfile.open(archive) as stream:
        for member in stream:
            wanted = member.isfile() and allowed.fullmatch(member.name)
            content = stream.extractfile(member) if wanted else None
            if content is None:
                continue
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                shutil.copyfileobj(content, out)
            names.append(member.name)
    return names

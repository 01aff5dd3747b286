"""Bring what a run left on one host into the run's folder on the controller."""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# A host decides about nothing but its own logs, records and checkpoint: no other name is unpacked.
MEMBER = re.compile(r"(logs|events|checkpoints)/[A-Za-z0-9][A-Za-z0-9._-]*")


class ActionModule(ActionBase):
    """Arguments: those of the module `run_archive`, and `folder` on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Pack on the host, fetch as the connecting user, unpack, remove the archive from the host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        folder = Path(arguments.pop("folder"))
        packed: dict[str, Any] = self._execute_module("run_archive", arguments, task_vars=task_vars)
        if packed.get("failed") or packed.get("unreachable") or self._task.check_mode:
            return result | packed
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / "run.tar.gz"
            self._connection.fetch_file(packed["path"], str(archive))
            names = unpack(archive, folder)
        self._remove(packed["path"])
        return result | {"changed": bool(names), "files": names}

    def _remove(self, path: str) -> None:
        self._low_level_execute_command(self._connection._shell.remove(path), sudoable=True)


def unpack(archive: Path, folder: Path) -> list[str]:
    """Write the archive's files below `folder`; return their names. Other names are passed over."""
    names = []
    with tarfile.open(archive) as stream:
        for member in stream:
            wanted = member.isfile() and MEMBER.fullmatch(member.name)
            content = stream.extractfile(member) if wanted else None
            if content is None:
                continue
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                shutil.copyfileobj(content, out)
            names.append(member.name)
    return names

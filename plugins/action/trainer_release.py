"""Put the trainer of this clone on a host as a release that is named by its content."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.carrying import CarryingAction
from plugins.module_utils.content_directory import content_files, content_hash


class ActionModule(CarryingAction):
    """Arguments: `source` (the folder of the trainer on the controller), `directory` (on the host), `keep`.

    Returns `release`, also in check mode.
    """

    MODULE = "trainer_release"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Name the release, and carry it where it is not yet."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = Path(arguments.pop("source"))
        arguments["release"] = content_hash(source)
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / f"trainer-{arguments['release']}.tar"
            pack(source, archive)
            result.update(self.carry(arguments, archive, task_vars or {}))
        return result


def pack(source: Path, archive: Path) -> None:
    """Write a tar archive of the content of `source`: owned by root, readable by all, without times."""
    with tarfile.open(archive, "w") as stream:
        for path in content_files(source):
            member = stream.gettarinfo(source / path, arcname=f"{source.name}/{path.as_posix()}")
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = 0
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            with (source / path).open("rb") as content:
                stream.addfile(member, content)

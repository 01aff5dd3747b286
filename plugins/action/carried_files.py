"""Carry files of the controller to a host, in archives of a bounded size: those that it lacks."""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.carried_manifest import Part, batches, manifest_bytes, pack, read_index
from plugins.long_step import MEGABYTE, REPORT_SECONDS
from plugins.module_utils.disk_space import readable

display = Display()

MODULE = "carried_files"
# What lies on the controller's and on the host's temporary disk at a time, for each host.
BATCH_BYTES = 64 * MEGABYTE
# A tar archive has a header and padding for each part of a file.
ROOM_BYTES = 2 * BATCH_BYTES


class ActionModule(ActionBase):
    """Arguments: `index` (of the action `carried_manifest`), `directory` and `records` (on the host)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the host; where its record does not answer, show it the manifest, and carry what it lacks."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        files = read_index(Path(arguments.pop("index")))
        manifest = manifest_bytes(files)
        arguments |= {"digest": hashlib.sha256(manifest).hexdigest(), "archive_bytes": ROOM_BYTES}
        asked: dict[str, Any] = self._execute_module(MODULE, arguments, task_vars=variables)
        if asked.get("failed") or not asked.get("needs_manifest"):
            return result | asked
        remote = self._make_tmp_path()
        try:
            with tempfile.TemporaryDirectory() as directory:
                local = Path(directory) / "manifest.json"
                local.write_bytes(manifest)
                arguments["manifest"] = self._send(local, remote)
                compared: dict[str, Any] = self._execute_module(MODULE, arguments, task_vars=variables)
                places = compared.pop("lacking", [])
                if compared.get("failed") or self._task.check_mode or not places:
                    return result | compared

                def receive(archive: Path) -> dict[str, Any]:
                    carried = {**arguments, "archive": self._send(archive, remote)}
                    received: dict[str, Any] = self._execute_module(MODULE, carried, task_vars=variables)
                    return received

                listed = list(files.values())
                total = sum(listed[place].size for place in places)
                progress = Progress(f"{variables['inventory_hostname']}: {arguments['directory']}", total)
                parts = batches(files, places, BATCH_BYTES)
                failure = carry(parts, Path(directory) / "parts.tar", receive, progress)
        finally:
            self._remove_tmp_path(remote, force=True)
        return result | compared | failure

    def _send(self, local: Path, remote: str) -> str:
        path: str = self._connection._shell.join_path(remote, local.name)
        self._transfer_file(str(local), path)
        self._fixup_perms2((remote, path))
        return path


class Progress:
    """Says how far the carrying is, now and then, and at the end of one that takes several archives."""

    def __init__(self, what: str, total: int) -> None:
        """Take what is carried where, and how many bytes it is."""
        self.what = what
        self.total = total
        self.done = 0
        self.started = self.reported = time.monotonic()

    def add(self, size: int) -> None:
        """Take note of bytes that have arrived."""
        self.done += size
        now = time.monotonic()
        if now - self.reported >= REPORT_SECONDS or self.done == self.total > BATCH_BYTES:
            self.reported = now
            figures = f"{readable(self.done)} of {readable(self.total)}, {now - self.started:.0f} s"
            display.display(f"  {self.what}: {figures}")


def carry(
    batched: Iterable[list[Part]],
    archive: Path,
    receive: Callable[[Path], dict[str, Any]],
    progress: Progress,
) -> dict[str, Any]:
    """Pack one archive after the other, and let the host receive it. Return its answer where it fails."""
    for parts in batched:
        try:
            pack(parts, archive)
        except OSError as error:
            raise AnsibleActionFail(f"{error}. Deploy again") from error
        received = receive(archive)
        if received.get("failed"):
            return received
        progress.add(sum(part.size for part in parts))
    return {}

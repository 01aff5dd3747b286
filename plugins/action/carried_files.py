"""Carries the files that a host lacks from the controller to the host, in archives of limited size."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.carried_manifest import CarriedFile, batches, manifest_bytes, pack, read_manifest
from psfleet.carry.long_step import MEGABYTE, REPORT_SECONDS, report_progress
from psfleet.watch.terminal import escaping_display
from trainer.host.wording import readable

from ..plugin_utils.actions import HostAction

display = escaping_display()

# For each host, the most bytes in the temporary folders of the controller and of the host at any time.
BATCH_BYTES = 64 * MEGABYTE
# A tar archive has a header and padding for each part of a file.
ROOM_BYTES = 2 * BATCH_BYTES


class ActionModule(HostAction):
    """Returns the answer of the module `carried_files`; sends files only if the host's record is outdated.

    Takes the arguments of the module, but `index` (the path that the action `carried_manifest` returned) in
    place of `digest`, `manifest`, `archive` and `archive_bytes`.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        files = read_manifest(Path(arguments.pop("index")))
        manifest = manifest_bytes(files)
        arguments |= {"digest": hashlib.sha256(manifest).hexdigest(), "archive_bytes": ROOM_BYTES}
        answer = self._run_module("carried_files", arguments)
        if answer.get("failed") or not answer.get("needs_manifest"):
            return answer
        remote = self._make_tmp_path()
        try:
            with tempfile.TemporaryDirectory() as directory:
                local = Path(directory) / "manifest.json"
                local.write_bytes(manifest)
                arguments["manifest"] = self._send(local, remote)
                answer = self._run_module("carried_files", arguments)
                places = sorted(set(range(len(files))).intersection(answer.pop("lacking", [])))
                if not (answer.get("failed") or self._task.check_mode):
                    answer |= self._carry(files, places, arguments, Path(directory) / "parts.tar", remote)
        finally:
            self._remove_tmp_path(remote, force=True)
        return answer

    def _carry(
        self,
        files: Mapping[str, CarriedFile],
        places: Sequence[int],
        arguments: Mapping[str, Any],
        archive: Path,
        remote: str,
    ) -> dict[str, Any]:
        """Send archive after archive to the host; return {}, or the host's answer as soon as the host fails.

        `places` are the positions in `files` of the files that the host lacks; each archive is written to the
        path `archive`; `remote` is a temporary folder of the host. Raises AnsibleActionFail if a file here
        was changed or cannot be packed.
        """
        listed = list(files.values())
        total, done = sum(listed[place].size for place in places), 0
        where = f"{self.variables['inventory_hostname']}: {arguments['directory']}"

        def so_far() -> str:
            return f"{where}: {readable(done)} of {readable(total)}"

        with report_progress(display.display, so_far, REPORT_SECONDS):
            for parts in batches(files, places, BATCH_BYTES):
                try:
                    pack(parts, archive)
                except OSError as error:
                    raise AnsibleActionFail(f"{error}. Deploy again") from error
                sent = {**arguments, "archive": self._send(archive, remote)}
                answer = self._run_module("carried_files", sent)
                if answer.get("failed"):
                    return answer
                done += sum(part.size for part in parts)
        if total > BATCH_BYTES:
            display.display(f"  {so_far()}")
        return {}

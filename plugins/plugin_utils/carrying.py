"""Runs a module that may need an archive from the controller, and carries it only if it does."""

import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display

from psfleet.carry.fan_out import FanOut
from psfleet.carry.long_step import REPORT_SECONDS, bytes_read, report_progress
from psfleet.carry.wheel_archive import plain
from trainer.host.content_directory import content_files, content_hash

from .actions import HostAction
from .running import COLLECTION

display = Display()
# A module, and its arguments for the host.
Call = tuple[str, Mapping[str, Any]]
# The most characters of a host's message about its neighbours.
MOST_CHARACTERS = 500


class CarryingAction(HostAction):
    """Takes a module that may answer `needs_archive`, and then takes it again with `archive`.

    `_carry` brings the archive. Of `python_environment` it is that of its `wheels`; of `content_release` it
    is packed from its `source`.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; bring the archive if the host needs it."""
        module = self._task.action.removeprefix(COLLECTION)
        call = (module, described(module, arguments))
        answer = self._take(*call)
        if answer.get("needs_archive") and not (answer.get("failed") or self._task.check_mode):
            return self._carry(call, arguments)
        return answer

    def _carry(self, call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry the archive to the host, and run the module with it."""
        if "wheels" in arguments:
            archive = Path(arguments["wheels"]["archive"])
            return self._carry_to_all(call, archive, arguments.get("shared_by", ""))
        source, release = Path(arguments["source"]), call[1]["release"]
        if (found := content_hash(source)) != release:
            raise AnsibleActionFail(
                f"{source} was changed while it was deployed: its hash is {found}, and was {release} before. "
                "Deploy again"
            )
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / f"release-{release}.tar"
            pack(source, archive, arguments.get("package", ""))
            return self._send_and_run(call, archive)

    def _send_and_run(
        self, call: Call, archive: Path, sent: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Copy the archive to the host, call `sent`, and run the module with the archive."""
        module, arguments = call
        remote = self._make_tmp_path()
        try:
            path = self._send(archive, remote)
            sent()
            return self._take(module, {**arguments, "archive": path})
        finally:
            self._remove_tmp_path(remote, force=True)

    def _carry_to_all(self, call: Call, archive: Path, login: str) -> dict[str, Any]:
        """Send the archive to one host, and let later hosts take it from each other.

        Without a login account among the hosts, each of them gets a direct upload.
        """
        module, arguments = call
        host = self.variables["inventory_hostname"]
        fan_out = FanOut(Path(constants.DEFAULT_LOCAL_TMP), archive)

        def progress() -> str:
            return fan_out.progress(host, bytes_read(archive), REPORT_SECONDS)

        with (
            fan_out.turn_of(host, has_neighbours=bool(login)) as neighbours,
            report_progress(display.display, progress, 1, fan_out.began),
        ):
            if neighbours:
                shared = {"login": login, "neighbours": neighbours, **fan_out.parts()}
                given = {**arguments, "shared": shared}
                answer = self._take(module, given)
                if not answer.get("needs_archive"):
                    return answer
                why = str(answer.get("not_given", ""))[:MOST_CHARACTERS]
                display.display(f"  {host}: no neighbour gave {archive.name}, so the controller does: {why}")
                fan_out.mark_uploading(host)
            if login:
                arguments = {**arguments, "shared": {}}
            return self._send_and_run((module, arguments), archive, lambda: fan_out.mark_complete(host))


def described(module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for the host; a source on the controller is replaced by its hash."""
    sent = {name: value for name, value in arguments.items() if name != "shared_by"}
    if module == "content_release":
        source = Path(sent.pop("source"))
        if "release" not in sent:
            sent["release"] = content_hash(source)
    return sent


def pack(source: Path, archive: Path, package: str = "") -> None:
    """Write a tar archive of the content of `source`: owned by root, readable by all, without times."""
    with tarfile.open(archive, "w", dereference=True) as stream:
        for name, path in content_files(source).items():
            stream.add(path, str(Path(package, name)), recursive=False, filter=plain)

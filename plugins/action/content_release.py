"""Put a program of the controller on a host as a release that is named by its content."""

import tarfile
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.wheel_archive import plain
from trainer.host.content_directory import content_files, content_hash

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module, and `source`, a file or folder on the controller.

    `release` may be left out: it is the hash of the source, and where it is given it must be.
    Returns `release`, also in check mode.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        source = Path(arguments.pop("source"))
        found = content_hash(source)
        if arguments.setdefault("release", found) != found:
            raise AnsibleActionFail(
                f"{source} was changed while it was deployed: its hash is {found}, and was "
                f"{arguments['release']} when the inventory was checked. Deploy again"
            )
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / f"release-{found}.tar"
            pack(source, archive, arguments.get("package", ""))
            return self._carry(arguments, archive)


def pack(source: Path, archive: Path, package: str = "") -> None:
    """Write a tar archive of the content of `source`: owned by root, readable by all, without times."""
    with tarfile.open(archive, "w", dereference=True) as stream:
        for name, path in content_files(source).items():
            stream.add(path, str(Path(package, name)), recursive=False, filter=plain)

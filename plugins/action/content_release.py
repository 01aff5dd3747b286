"""Puts a release on a host, with its files if the host lacks them, or removes content that nothing needs."""

import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.wheel_archive import with_fixed_attributes

from ..module_utils.content_directory import content_files, content_hash
from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Returns the answer of the module `content_release`; sends the release only if the host lacks it.

    Takes the arguments of the module, and for the state "present" also `source`: the release's file or folder
    on the controller. Without `release`, the release's name is the hash of the source.
    """

    def _for_host(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        sent = dict(arguments)
        if sent.get("state", "present") == "present":
            if not (source := sent.pop("source", "")):
                raise AnsibleActionFail(
                    "source is missing: the file or folder of the release on the controller"
                )
            sent.setdefault("release", content_hash(Path(source)))
        return sent

    def _carry(self, sent: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        source, release = Path(arguments["source"]), sent["release"]
        if (found := content_hash(source)) != release:
            raise AnsibleActionFail(
                f"{source} was changed while it was deployed: its hash is {found}, and was {release} before. "
                "Deploy again"
            )
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory) / f"release-{release}.tar"
            pack(source, archive, arguments.get("package", ""))
            return self._send_and_run(sent, archive)


def pack(source: Path, archive: Path, package: str = "") -> None:
    """Write the tar file `archive` with the files of `content_files(source)`, below the folder `package`.

    If `package` is "", the files are at the archive's root. They are owned by root, readable by all users,
    and without times. Links to files are followed.
    """
    with tarfile.open(archive, "w", dereference=True) as stream:
        for name, path in content_files(source).items():
            stream.add(path, str(Path(package, name)), recursive=False, filter=with_fixed_attributes)

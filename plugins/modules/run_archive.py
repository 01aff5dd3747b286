"""Pack what a run left on one host into one archive that the connecting user may fetch."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: run_archive
short_description: Pack the logs, records and checkpoints of one run
options:
  run_id:
    description: The run.
    type: str
    required: true
  state_directory:
    description: Where the tasks keep their runs.
    type: path
    default: /var/lib/psfleet
  log_directory:
    description: Where the tasks' output is.
    type: path
    default: /var/log/psfleet
author: psfleet
"""

EXAMPLES = r"""
- name: Pack the run
  run_archive:
    run_id: psfleet-20260101-120000
"""

RETURN = r"""
path:
  description: The archive, readable by the connecting user alone. Remove it when it is fetched.
  returned: always
  type: str
files:
  description: How many files it holds.
  returned: always
  type: int
"""

FOLDERS = ("events", "checkpoints")
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def add_run(archive: tarfile.TarFile, run_id: str, state_directory: Path, log_directory: Path) -> int:
    """Add the regular files of a run to the archive and return their number; unfinished saves stay behind.

    This runs as root in directories that the tasks' user owns, and a task does what visitors of its port
    say: so no link is followed, in no part of a path.
    """
    logs = _add_folder(archive, log_directory, (run_id,), "logs")
    others = [_add_folder(archive, state_directory, ("runs", run_id, name), name) for name in FOLDERS]
    return logs + sum(others)


def _add_folder(archive: tarfile.TarFile, root: Path, parts: Sequence[str], name: str) -> int:
    with ExitStack() as stack:
        try:
            folder = _opened(stack, str(root), None)
            for part in parts:
                folder = _opened(stack, part, folder)
        except OSError:  # nothing was left here, or a link is in the way
            return 0
        names = sorted(os.listdir(folder))  # noqa: PTH208 - of a descriptor
        return sum(_add_file(archive, folder, file, f"{name}/{file}") for file in names)


def _opened(stack: ExitStack, path: str, parent: int | None) -> int:
    descriptor = os.open(path, NO_LINK | os.O_DIRECTORY, dir_fd=parent)
    stack.callback(os.close, descriptor)
    return descriptor


def _add_file(archive: tarfile.TarFile, folder: int, file: str, name: str) -> int:
    if "tempstate" in file:
        return 0
    try:
        stream = os.fdopen(os.open(file, NO_LINK, dir_fd=folder), "rb")
    except OSError:
        return 0
    with stream:
        member = archive.gettarinfo(arcname=name, fileobj=stream)
        if member is None or not member.isreg():
            return 0
        archive.addfile(member, stream)
    return 1


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "run_id": {"type": "str", "required": True},
            "state_directory": {"type": "path", "default": "/var/lib/psfleet"},
            "log_directory": {"type": "path", "default": "/var/log/psfleet"},
        },
        supports_check_mode=True,
    )
    values = module.params
    if module.check_mode:
        module.exit_json(changed=False, path="", files=0)
    handle, path = tempfile.mkstemp(prefix="psfleet-", suffix=".tar.gz", dir="/var/tmp")
    with (
        os.fdopen(handle, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive,
    ):
        files = add_run(
            archive, values["run_id"], Path(values["state_directory"]), Path(values["log_directory"])
        )
    # Under sudo the connecting user is not root, and fetches without it.
    os.chown(path, int(os.environ.get("SUDO_UID", "0")), -1)
    module.exit_json(changed=False, path=path, files=files)


if __name__ == "__main__":
    main()

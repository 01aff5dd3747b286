"""Pack what a run left on one host into one archive that the connecting user may fetch."""

from __future__ import annotations

import os
import tarfile
import tempfile
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

LOGS = "logs"
FOLDERS = ("events", "checkpoints")


def members(run_id: str, state_directory: Path, log_directory: Path) -> list[tuple[Path, str]]:
    """Return each file of the run with its name in the archive. Links and unfinished saves are left out."""
    run = state_directory / "runs" / run_id
    folders = [(log_directory / run_id, LOGS), *((run / folder, folder) for folder in FOLDERS)]
    return [
        (path, f"{name}/{path.relative_to(folder)}")
        for folder, name in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and "tempstate" not in path.name
    ]


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
    files = members(values["run_id"], Path(values["state_directory"]), Path(values["log_directory"]))
    if module.check_mode:
        module.exit_json(changed=False, path="", files=len(files))
    handle, path = tempfile.mkstemp(prefix="psfleet-", suffix=".tar.gz", dir="/var/tmp")
    with (
        os.fdopen(handle, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive,
    ):
        for source, name in files:
            archive.add(source, arcname=name, recursive=False)
    # Under sudo the connecting user is not root, and fetches without it.
    os.chown(path, int(os.environ.get("SUDO_UID", "0")), -1)
    module.exit_json(changed=False, path=path, files=len(files))


if __name__ == "__main__":
    main()

"""Prove that an account of this host logs in by SSH, after sshd has read what was written for it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..module_utils.documented import documented_module
from ..module_utils.host.safe_directory import opened, write
from ..module_utils.host.task_traces import bytes_of
from ..module_utils.host.task_units import systemctl

DOCUMENTATION = {
    "module": "ssh_login",
    "short_description": "Have sshd read what was written for a login, and prove that it works",
    "description": "Does nothing where nothing has changed since it was proven: neither C(files), nor "
    "what sshd reads beside them, nor the process of sshd. A check does not log in.",
    "options": {
        "service": {"required": True, "description": "systemd service of sshd."},
        "login": {"type": "list", "elements": "str", "required": True, "description": "The command line."},
        "files": {"type": "list", "elements": "path", "required": True, "description": "What sshd reads."},
        "proven": {"type": "path", "required": True, "description": "File that says what was proven."},
        "user": {"required": True, "description": "The account, for messages."},
        "host": {"required": True, "description": "The host's name, for messages."},
    },
}

RETURN = r"""
proven: {returned: always, type: bool, description: Whether it was proven now.}
"""

CONFIGURATION = Path("/etc/ssh")
# A reload has ended before sshd has read its files and listens again.
TRIES = 5


def read_by_sshd(files: Iterable[Path], configuration: Path = CONFIGURATION) -> list[Path]:
    """Return the files that say who may log in."""
    return [*files, configuration / "sshd_config", *sorted(configuration.glob("sshd_config.d/*.conf"))]


def state_of(paths: Iterable[Path], process: str) -> str:
    """Return what changes with the files, and with the process of sshd."""
    found = {str(path): path.stat() for path in paths if path.exists()}
    files = {path: [each.st_ino, each.st_ctime_ns] for path, each in found.items()}
    return json.dumps({"process": process, "files": files})


def tried(login: Sequence[str]) -> str:
    """Log in, and return why that failed; empty where it did not."""
    for attempt in range(TRIES):
        time.sleep(min(attempt, 1))
        done = subprocess.run(login, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if not done.returncode:
            return ""
    return done.stderr.strip().rpartition("\n")[2] or "no answer"


def main() -> None:
    """Run the module."""
    module = documented_module(DOCUMENTATION)
    values = module.params
    service, proven = values["service"], Path(values["proven"])
    try:
        paths = read_by_sshd(map(Path, values["files"]))
        process = systemctl("show", "--property=MainPID", "--value", service).strip()
        state = state_of(paths, process)
        if module.check_mode or bytes_of(proven).decode(errors="replace") == state:
            module.exit_json(changed=False, proven=False)
        systemctl("reload", service)
        if problem := tried(values["login"]):
            module.fail_json(
                msg=f"{values['user']} cannot log in from {values['host']} to itself: {problem}\n"
                "If the host's own sshd_config limits who may log in (AllowUsers, AllowGroups, DenyUsers) or "
                f"does not include\nsshd_config.d/*.conf, let {values['user']} in there. "
                f"`journalctl --unit={service}` says what sshd objected to."
            )
        with opened(proven.parent) as folder:
            write(folder, proven.name, state.encode())
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, proven=True)


if __name__ == "__main__":
    main()

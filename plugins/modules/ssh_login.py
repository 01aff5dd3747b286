"""Prove that the system user of one host can log in to it over SSH, without a question."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence

from ..module_utils.documented import documented_module

DOCUMENTATION = {
    "module": "ssh_login",
    "short_description": "Prove that a user can log in over SSH without a question",
    "description": [
        "The host logs in to itself by its name in the cluster. Its own certificates and its own sshd take "
        "part as they do towards every other host.",
        "Where the login fails, sshd is told to read its configuration and certificate again, and the login "
        "is tried for a few seconds more. That mends a host whose deployment was interrupted before that.",
    ],
    "options": {
        "user": {"required": True, "description": "The user that logs in."},
        "host": {"required": True, "description": "The name to log in to."},
        "service": {"required": True, "description": "The systemd service of sshd."},
    },
}

CONNECT_SECONDS = 10
# A reload of sshd has ended before sshd has read its files and listens again.
RELOAD_SECONDS = 5


def failure(command: Sequence[str], seconds: float = 0.0) -> str:
    """Run a command until it succeeds, but no longer than so many seconds; return what it said at last."""
    deadline = time.monotonic() + seconds
    while True:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
        if not done.returncode or time.monotonic() >= deadline:
            return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""
        time.sleep(0.2)


def main() -> None:
    """Run the module."""
    module = documented_module(DOCUMENTATION)
    user, host, service = (module.params[name] for name in ("user", "host", "service"))
    ssh = ["ssh", "-n", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}", host, "true"]
    command = ["runuser", "--user", user, "--", *ssh]
    if module.check_mode or not failure(command):
        module.exit_json(changed=False)
    if second := failure(["systemctl", "reload", service]) or failure(command, RELOAD_SECONDS):
        module.fail_json(
            msg=f"{user} cannot log in from {host} to itself: {second}. If the host's own sshd_config limits "
            "who may log in (AllowUsers, AllowGroups, DenyUsers) or does not include sshd_config.d/*.conf, "
            f"let {user} in there. `journalctl --unit={service}` says what sshd objected to."
        )
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()

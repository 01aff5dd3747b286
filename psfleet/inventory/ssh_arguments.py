"""Finds arguments of ssh that turn off the check of hosts' keys."""

import shlex
import subprocess
from collections.abc import Mapping
from functools import cache

# Ansible's settings that contain arguments of ssh, and a host's variables that set them.
SETTINGS = ("ssh_args", "ssh_common_args", "ssh_extra_args")
VARIABLES = tuple(f"ansible_{name}" for name in SETTINGS)
NO_FILES = {"/dev/null", "none"}
SECONDS = 10.0
EXPECTED = (
    "expected StrictHostKeyChecking=yes, or accept-new with a file of keys, such as ssh's own "
    "~/.ssh/known_hosts"
)


@cache
def unsafe_options(arguments: str) -> str:
    """Return the options in `arguments` with which ssh accepts any key of a host; "" if there are none.

    ssh itself reads the arguments, so each spelling counts, and so does a file after -F. Arguments that ssh
    refuses give "", and so does a machine without ssh.
    Example: unsafe_options("-o StrictHostKeyChecking=off") -> "StrictHostKeyChecking=no"
    """
    try:
        command = ["ssh", "-G", "-F", "none", *shlex.split(arguments), "host.invalid"]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=SECONDS
        )
    except (OSError, ValueError, subprocess.SubprocessError):  # Ansible reports it when it connects
        return ""
    return _unchecked(dict(line.partition(" ")[::2] for line in done.stdout.splitlines()))


def _unchecked(options: Mapping[str, str]) -> str:
    checking, files = options.get("stricthostkeychecking"), options.get("userknownhostsfile", "")
    if checking in {"false", "off", "no"}:
        return "StrictHostKeyChecking=no"
    if checking == "accept-new" and {*files.split()} <= NO_FILES:
        return f"StrictHostKeyChecking=accept-new with UserKnownHostsFile={files}"
    return ""

"""The commands that hosts of the cluster may run on each other over SSH; sshd runs this file for any command.

On a host it is a single file, which the host's own Python runs as the account that logged in:
`/usr/bin/python3.X -I -S FILE ENVIRONMENTS [shell]`. With `shell`, unknown commands go to a shell.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from pathlib import Path

NAME = "hostname"
# The hash of an archive's lock, its size, the offset to begin at, and how many seconds to wait for more.
GIVE = re.compile(r"give ([0-9a-f]{1,64}) ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,2})")
BLOCK_BYTES = 1 << 20
# The most sessions of the login that give an archive at once; a host that is refused asks another one.
MOST_SESSIONS = 16


def main() -> str | None:
    """Run the command in SSH_ORIGINAL_COMMAND; return None, or in words why it is refused.

    sys.exit prints this reason.
    """
    environments, *permitted = sys.argv[1:]
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if command == NAME:
        sys.stdout.write(f"{socket.gethostname()}\n")
        return None
    if match := GIVE.fullmatch(command):
        size, offset, silent = map(int, match.groups()[1:])
        if older_sessions() >= MOST_SESSIONS:
            return f"{socket.gethostname()}: {MOST_SESSIONS} hosts take archives from here already"
        return give(Path(environments), match[1], size, offset, silent)
    if permitted == ["shell"]:
        os.execv("/bin/sh", ["sh", "-c", command] if command else ["-sh"])  # noqa: S606 - a shell is asked for
    what = f"{socket.gethostname()}: psfleet's login does here what a deployment needs, and `{NAME}`"
    return f"{what}. For a shell, set ssh_mesh_shell: true and deploy"


def older_sessions() -> int:
    """Return the number of processes of this account that run this program and started before this one."""
    own = Path("/proc/self/cmdline").read_bytes()
    begins = dict[int, tuple[int, int]]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.getuid() and (process / "cmdline").read_bytes() == own:
                begun = int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
                begins[int(process.name)] = begun, int(process.name)
        except OSError:  # noqa: PERF203 - it has ended
            continue
    return sum(begun < begins[os.getpid()] for begun in begins.values())


def give(environments: Path, lock_hash: str, size: int, offset: int, silent: int) -> str | None:
    """Print an environment's archive, of `size` bytes, from the byte `offset` on; return None at its end.

    If this host still receives the archive, wait for more; return None after `silent` seconds without new
    bytes. Return a reason, in words, if this host no longer has the archive.
    """
    archive, installed = environments / f".archive-{lock_hash}", environments / lock_hash / ".complete"
    file, since = None, time.monotonic()
    while offset < size and time.monotonic() - since < silent:
        if not file and archive.exists():
            file = archive.open("rb", buffering=0)
            file.seek(offset)
        if block := file.read(BLOCK_BYTES) if file else b"":
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
            offset, since = offset + len(block), time.monotonic()
        elif not file and installed.exists():
            return "it has installed the archive, and no longer keeps it"
        else:
            time.sleep(0.02)
    return None


if __name__ == "__main__":
    sys.exit(main())

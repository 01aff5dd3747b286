"""The boot of its host in which a task was started, because systemd forgets at a reboot what ran before."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from ..host.task_traces import bytes_of

# Exists while the host goes down, if a task was running then. systemd's /run is empty after a boot.
SHUTDOWN = Path("/run/psfleet/shutdown")
# A restarted container has the same boot id as its machine, but another first process.
_COMMAND = 'echo $(cat /proc/sys/kernel/random/boot_id) $(sed "s/.*) //" /proc/1/stat | cut -d " " -f 20)'


def unless_going_down(command: str, shutdown: Path = SHUTDOWN) -> str:
    """Return a shell command that only says so if the host goes down: its tasks have not ended for good."""
    return f"test ! -e {shutdown} || {{ echo the host goes down >&2; exit 1; }}; {command}"


def boot_of(proc: Path = Path("/proc")) -> str:
    """Return what identifies the current boot: the boot id and the start time of the first process."""
    process = (proc / "1/stat").read_text().rpartition(") ")[2].split()
    return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()} {process[19]}"


def boot_file(configuration: Path, job: str, index: int) -> Path:
    """Return the file with the boot in which a task was started; it is removed after the task's end."""
    return configuration / "run" / f"{job}-{index}.boot"


def write_boot_command(file: str) -> str:
    """Return the shell command, without single quotes, that writes the current boot to a file."""
    return f"{_COMMAND} > {file}"


def rebooted_since(file: Path) -> bool:
    """Return whether the host was booted after the start of this file's task; False without the file."""
    boot = bytes_of(file).decode("utf-8", "replace").strip()
    return bool(boot) and boot != boot_of()


def rebooted_command(files: Iterable[Path]) -> str:
    """Return the shell command that prints those of these files that are of an earlier boot, one a line."""
    each = shlex.join(map(str, files))
    return (
        f'boot=$({_COMMAND}); for file in {each}; do test -s "$file" && test "$(cat "$file")" != "$boot" '
        '&& echo "$file"; done'
    )

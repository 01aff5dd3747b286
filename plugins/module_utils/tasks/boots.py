"""The boot of the host in which a task was started; at a reboot, systemd forgets what ran before."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from ..host.task_traces import bytes_of

# This file exists while the host goes down, if a task was running then. /run is empty after a boot.
SHUTDOWN = Path("/run/psfleet/shutdown")
# Prints what `boot_of` returns. A restarted container has its machine's boot id, but another first process.
_COMMAND = 'echo $(cat /proc/sys/kernel/random/boot_id) $(sed "s/.*) //" /proc/1/stat | cut -d " " -f 20)'


def unless_going_down(command: str, shutdown: Path = SHUTDOWN) -> str:
    """Return a shell command that runs `command`; while the host goes down, it prints so and fails instead.

    While the host goes down, systemd reports ended tasks that will go on after the boot.
    """
    return f"test ! -e {shutdown} || {{ echo the host goes down >&2; exit 1; }}; {command}"


def boot_of(proc: Path = Path("/proc")) -> str:
    """Return a text that identifies the current boot; a restarted container has another one, too.

    It is "<boot id> <start time of the first process, in ticks>".
    """
    process = (proc / "1/stat").read_text().rpartition(") ")[2].split()
    return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()} {process[19]}"


def boot_file(configuration: Path, job: str, index: int) -> Path:
    """Return the path of the file that has the identifier of the boot in which a task was started.

    A task's unit writes the file, and it is removed after the task's end. `configuration` is the
    configuration directory.
    """
    return configuration / "run" / f"{job}-{index}.boot"


def write_boot_command(file: str) -> str:
    """Return a shell command, without single quotes, that writes the text of `boot_of()` into a file."""
    return f"{_COMMAND} > {file}"


def rebooted_since(file: Path) -> bool:
    """Return whether the host was booted after `file`, a task's boot file, was written.

    Return False if the file is missing or empty.
    """
    boot = bytes_of(file).decode("utf-8", "replace").strip()
    return bool(boot) and boot != boot_of()


def rebooted_command(files: Iterable[Path]) -> str:
    """Return a shell command that prints the boot files written before the last boot, one in each line.

    Missing and empty files are not printed.
    """
    each = shlex.join(map(str, files))
    return (
        f'boot=$({_COMMAND}); for file in {each}; do test -s "$file" && test "$(cat "$file")" != "$boot" '
        '&& echo "$file"; done'
    )

"""Which boot of its host a task was started in: systemd knows nothing of what ran before a reboot."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from .task_traces import bytes_of

# A container that is started anew keeps the boot id of its machine, and has another first process.
_COMMAND = "echo $(cat /proc/sys/kernel/random/boot_id) $(sed 's/.*) //' /proc/1/stat | cut -d ' ' -f 20)"


def boot_of(proc: Path = Path("/proc")) -> str:
    """Return what is another after each boot of this host: its boot id, and when its first process began."""
    process = (proc / "1/stat").read_text().rpartition(") ")[2].split()
    return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()} {process[19]}"


def boot_file(configuration: Path, job: str, index: int) -> Path:
    """Return the file that has the boot in which a task was started, as long as nobody saw it end in that."""
    return configuration / "run" / f"{job}-{index}.boot"


def rebooted_since(file: Path) -> bool:
    """Tell whether the host was booted since the task of this file was started, as far as that is told."""
    told = bytes_of(file).decode("utf-8", "replace").strip()
    return bool(told) and told != boot_of()


def rebooted_command(files: Iterable[Path]) -> str:
    """Return the command that prints which of these files are of an earlier boot, a line each."""
    each = shlex.join(map(str, files))
    return (
        f'boot=$({_COMMAND}); for file in {each}; do test -s "$file" && test "$(cat "$file")" != "$boot" '
        '&& echo "$file"; done'
    )

"""The systemd units of a host's tasks: their names, and what `systemctl show` says of them."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# There is nothing to ask where it lacks: the host was not booted with systemd.
BOOTED = Path("/run/systemd/system")
# The jobs of a run, in the order in which people are shown them; and all that have units.
RUN_JOBS = ("ps", "chief", "worker", "server")
UNIT_JOBS = (*RUN_JOBS, "evaluator")
ALIVE = {"active", "activating", "reloading", "deactivating"}
_NOT_COUNTED = 2**64 - 1
_TASK = re.compile(rf"(?:psfleet-)?(?P<job>{'|'.join(UNIT_JOBS)})[@-](?P<index>[0-9]+)\.(?:service|env)")


class SystemdError(OSError):
    """systemd has not done, or not told, what it was asked for."""


def unit_name(job: str, index: int) -> str:
    """Return the systemd unit of a task."""
    return f"psfleet-{job}@{index}.service"


def task_of(name: str) -> tuple[str, int] | None:
    """Return job and index of a unit (psfleet-ps@0.service) or of a file (ps-0.env), None of others."""
    match = _TASK.fullmatch(name)
    return (match["job"], int(match["index"])) if match else None


def is_alive(values: Mapping[str, str]) -> bool:
    """Tell whether a unit runs or is about to: one whose start waits for another unit's is inactive yet."""
    return values.get("ActiveState") in ALIVE or values.get("Job", "0") not in {"", "0"}


def systemctl(*arguments: str, timeout: float | None = None) -> str:
    """Run systemctl and return what it printed. What became of the units is read from their states."""
    command = ["systemctl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout).stdout


def systemctl_strictly(*arguments: str) -> str:
    """Run systemctl and return what it printed. Raises SystemdError, with its words, where it fails."""
    command = ["systemctl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemdError(done.stderr.strip() or f"{shlex.join(command)}: exit code {done.returncode}")
    return done.stdout


def show_units(units: Sequence[str], properties: Sequence[str]) -> list[dict[str, str]]:
    """Ask systemd for properties of units. Raises SystemdError where it does not tell them all."""
    asked = f"systemctl show was asked for {len(units)} units and said"
    try:
        shown = parse_show(systemctl_strictly("show", f"--property={','.join(properties)}", *units))
    except SystemdError as error:
        raise SystemdError(f"{asked}: {error}") from error
    if len(shown) != len(units):
        raise SystemdError(f"{asked} something of {len(shown)}")
    return shown


def counted(value: str | None) -> int | None:
    """Return a figure of systemd, None where it does not count."""
    return int(value) if value and value.isdigit() and int(value) != _NOT_COUNTED else None


def parse_list(text: str) -> list[str]:
    """Return the names of units in what `systemctl list-units --plain --no-legend` prints."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def parse_show(text: str) -> list[dict[str, str]]:
    """Parse what `systemctl show` prints for several units: blocks of KEY=value, divided by empty lines.

    Where sudo has a terminal on the host, lines end as on one.
    """
    return [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in text.replace("\r\n", "\n").strip().split("\n\n")
        if block.strip()
    ]

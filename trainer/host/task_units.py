"""The systemd units of a host's tasks: their names, and their states from `systemctl show`."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# This directory is missing if the host was not booted with systemd.
BOOTED = Path("/run/systemd/system")
# The jobs of a run, in the order in which people see them; then all jobs that have units.
RUN_JOBS = ("ps", "chief", "worker", "server", "evaluator")
# The unit of psfleet's own evaluator has another name than the unit of a program's task evaluator0.
EVALUATION = "evaluation"
UNIT_JOBS = (*RUN_JOBS, EVALUATION)
ALIVE = {"active", "activating", "reloading", "deactivating"}
_NOT_COUNTED = 2**64 - 1
# The StatusText of a program's unit while the program only serves, which it does until it is stopped.
ONLY_SERVES = "it only serves: its program waits in server.join()"
_TASK = re.compile(rf"(?:psfleet-)?(?P<job>{'|'.join(UNIT_JOBS)})[@-](?P<index>[0-9]+)\.(?:service|env)")


class SystemdError(OSError):
    """systemctl has failed, or its answer is not complete."""


def unit_name(job: str, index: int) -> str:
    """Return the name of a task's systemd unit, such as "psfleet-ps@0.service"."""
    return f"psfleet-{job}@{index}.service"


def task_name(job: str, index: int) -> str:
    """Return the name of the process in a unit: ("ps", 0) -> "ps0", ("evaluation", 0) -> "evaluator0".

    psfleet's own evaluator and a program's task evaluator0 have one name, because no run has both.
    """
    return f"{'evaluator' if job == EVALUATION else job}{index}"


def task_of(name: str) -> tuple[str, int] | None:
    """Return (job, index) of a unit's or an environment file's name; None for other names.

    Examples: "psfleet-ps@0.service" -> ("ps", 0); "ps-0.env" -> ("ps", 0); "ssh.service" -> None
    """
    match = _TASK.fullmatch(name)
    return (match["job"], int(match["index"])) if match else None


def is_alive(values: Mapping[str, str]) -> bool:
    """Return whether a unit runs, starts, stops or has a job in systemd's queue; False if failed or inactive.

    `values` are the unit's properties `ActiveState` and `Job`. A unit that waits for another unit is inactive
    but has a job, so it is alive.
    """
    return values.get("ActiveState") in ALIVE or values.get("Job", "0") not in {"", "0"}


def systemctl(*arguments: str, timeout: float | None = None) -> str:
    """Run systemctl with these arguments and return its standard output, even if it fails.

    Raises subprocess.TimeoutExpired after `timeout` seconds; None waits without a limit.
    """
    command = ["systemctl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout).stdout


def systemctl_strictly(*arguments: str) -> str:
    """Run systemctl with these arguments and return its standard output; wait without a limit.

    If the exit code is not 0, raises SystemdError with what systemctl printed as error.
    """
    command = ["systemctl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemdError(done.stderr.strip() or f"{shlex.join(command)}: exit code {done.returncode}")
    return done.stdout


def show_units(units: Sequence[str], properties: Sequence[str]) -> list[dict[str, str]]:
    """Return [{property: value} of each unit], in the order of `units`, which has at least one name.

    Raises SystemdError if systemctl fails, or does not answer for all units.
    """
    prefix = f"systemctl show was asked for {len(units)} units and answered"
    try:
        shown = parse_show(systemctl_strictly("show", f"--property={','.join(properties)}", *units))
    except SystemdError as error:
        raise SystemdError(f"{prefix}: {error}") from error
    if len(shown) != len(units):
        raise SystemdError(f"{prefix} for {len(shown)}")
    return shown


def count_in(value: str | None) -> int | None:
    """Return the integer in a property's value; None if there is none, or if systemd does not count it.

    Examples: "12" -> 12; None and "[not set]" -> None; "18446744073709551615" (not counted) -> None
    """
    return int(value) if value and value.isdigit() and int(value) != _NOT_COUNTED else None


def parse_list(text: str) -> list[str]:
    """Return the units' names, in order, in the output of `systemctl list-units --plain --no-legend`."""
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def parse_show(text: str) -> list[dict[str, str]]:
    """Return [{property: value} of each unit] in the output of `systemctl show`, in its order; [] for "".

    The output has a block of KEY=value lines for each unit, separated by empty lines. Line ends may be CR LF,
    as sudo makes them with a terminal.
    """
    return [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in text.replace("\r\n", "\n").strip().split("\n\n")
        if block.strip()
    ]

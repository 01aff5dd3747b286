"""Tries TensorFlow in the sandbox of a host's tasks, with the units psfleet-doctor@<job>-<index>."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..content_directory import locked
from ..host.check import Check
from ..host.error_lines import last_words
from ..host.task_traces import last_lines_of, object_in
from ..host.task_units import parse_show, systemctl

# The names of the checks. Each check needs the one before it.
NAMES = ("tensorflow", "libraries", "devices", "product")
STATES = ("ok", "warning", "failed", "skipped")
# Only root can write here and into the directory of the answers, so no task can place a link that root
# follows.
LOCK = Path("/run/psfleet-doctor.lock")
# Slightly longer than the unit's TimeoutStartSec=, which ends it.
SECONDS_TO_ANSWER = 330
PROPERTIES = ("Id", "LoadState", "Result", "ExecMainCode", "ExecMainStatus")
KILLED = ("2", "3")  # CLD_KILLED, CLD_DUMPED


def all_skipped(reason: str) -> list[Check]:
    """Return the checks `tensorflow`, `libraries`, `devices` and `product`, all skipped for this reason."""
    return [Check(name, "skipped", reason) for name in NAMES]


def first_failed(found: str, remedy: str) -> list[Check]:
    """Return the check `tensorflow`, failed, and `libraries`, `devices` and `product`, skipped."""
    return [Check(NAMES[0], "failed", found, remedy), *all_skipped(f"{NAMES[0]} failed")[1:]]


def ask_tensorflow(tasks: Sequence[str], log_directory: Path) -> list[Check]:
    """Start the doctor's unit of each task, such as "worker-0", all at once; return the checks of all tasks.

    Each check has its `task`, such as "worker0". If another command does the same at this moment, wait for
    it. If the units cannot be started or do not end in time, no error is raised: the checks have failed.
    """
    try:
        answers = _ask_together(tasks, log_directory)
    except (OSError, subprocess.TimeoutExpired) as error:  # a timeout of the lock is an OSError
        remedy = "`systemctl status 'psfleet-doctor@*'` on the host shows what it waits for"
        answers = dict.fromkeys(tasks, first_failed(f"it could not be tried: {error}", remedy))
    return [
        replace(check, task=task.replace("-", "")) for task, checks in answers.items() for check in checks
    ]


def _ask_together(tasks: Sequence[str], log_directory: Path) -> dict[str, list[Check]]:
    units = {task: f"psfleet-doctor@{task}.service" for task in tasks}
    bounded = partial(systemctl, timeout=SECONDS_TO_ANSWER)
    with locked(LOCK, SECONDS_TO_ANSWER):
        bounded("start", *units.values())
        shown = parse_show(bounded("show", f"--property={','.join(PROPERTIES)}", *units.values()))
        states = {values["Id"]: values for values in shown}
        # A failure here is part of the answer, so the host should not have a failed unit.
        bounded("reset-failed", *units.values())
        return {
            task: read_answer(log_directory / f"doctor-{task}.out", states.get(unit, {}))
            for task, unit in units.items()
        }


def read_answer(output: Path, unit: Mapping[str, str]) -> list[Check]:
    """Return the checks that the process of a doctor's unit wrote to `output`.

    If it wrote none, return the same checks, skipped if the unit does not exist, else failed with the reason.
    `unit` has the unit's PROPERTIES, as `systemctl show` prints them.
    """
    if unit.get("LoadState") != "loaded":
        return all_skipped(f"its unit is {unit.get('LoadState', 'not known')}: deployed by an older psfleet")
    if unit.get("Result") == "success":
        for line in reversed(last_lines_of(output)):
            with suppress(KeyError, TypeError):
                checks = [Check.from_json(check) for check in object_in(line)["checks"]]
                if checks and all(check.state in STATES for check in checks):
                    return checks
    ended = f"python -m trainer.doctor {_ended(unit)}"
    words = (
        last_words(last_lines_of(output)).replace("\n", " | ") if unit.get("Result") != "resources" else ""
    )
    remedy = f"look at its whole output on the host, {output.parent}/doctor-<job>-<index>.out"
    return first_failed(f"{ended}: {words}" if words else ended, remedy)


def _ended(unit: Mapping[str, str]) -> str:
    result, status = unit.get("Result", ""), int(unit.get("ExecMainStatus") or 0)
    if result == "success":
        return "gave no answer"
    if result == "timeout":
        return "took longer than its unit allows"
    if unit.get("ExecMainCode") in KILLED:
        return f"was ended by signal {status} ({signal.strsignal(status)})"
    return f"ended with exit code {status}" if result == "exit-code" else f"could not be run ({result})"

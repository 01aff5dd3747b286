"""Details of a task for people: since when it is in its state, its progress, its size, its last output."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..host.task_traces import LOG_END_BYTES, bytes_of, last_record, last_step_figures, number
from ..host.task_units import count_in

# The properties of a unit that `task_details` reads, in addition to MainPID and Result.
DETAIL_PROPERTIES = (
    *("StateChangeTimestampMonotonic", "WatchdogTimestampMonotonic"),
    *("MemoryCurrent", "CPUUsageNSec"),
)


def task_details(properties: Mapping[str, str], events: Path, log: Path) -> dict[str, Any]:
    """Return the fields that RETURN of the module `trainer_tasks` lists for `details`, except `progress`.

    A figure that systemd or the task does not provide is None. `properties` are the unit's, as `systemctl
    show` prints them; `events` and `log` are the task's files. Only the end of the log is read.
    """
    step, last = last_step_figures(events), last_record(events)
    now = time.time()
    cpu = count_in(properties.get("CPUUsageNSec"))
    finished = str(last.get("reason")) if last.get("event") == "finished" else ""
    changed = _seconds_since(properties.get("StateChangeTimestampMonotonic"))
    return {
        "result": properties.get("Result", ""),
        # systemd forgets a unit that ended successfully; its last record says when and how it ended.
        "since_seconds": changed or _age(last.get("wall"), now),
        "sign_of_life_age_seconds": _seconds_since(properties.get("WatchdogTimestampMonotonic")),
        "finished": finished,
        "memory_bytes": count_in(properties.get("MemoryCurrent")),
        "cpu_seconds": None if cpu is None else cpu / 1e9,
        "log": str(log),
        "log_end": bytes_of(log, most=LOG_END_BYTES, last=True).decode("utf-8", "replace"),
        "last_step": step,
        "last_step_age_seconds": _age(step.get("wall"), now),
    }


def _seconds_since(microseconds: str | None) -> float | None:
    """Return the seconds since a moment of the monotonic clock; None if systemd printed 0 or nothing."""
    moment = count_in(microseconds)
    return time.monotonic() - moment / 1e6 if moment else None


def _age(wall: object, now: float) -> float | None:
    since = number(wall)
    return None if since is None else now - since

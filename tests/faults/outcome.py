"""What became of a run with a fault: pure functions over its records, and what was seen of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
# In place of a verdict, where a fault did not bite.
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Outcome:
    """The figures of one row; None where a row has none. Seconds are counted from the injection."""

    verdict: str
    headline: str
    exit_status: int | None = None
    seconds_until_told: float | None = None
    told: str = ""
    seconds_until_training: float | None = None
    steps_lost: int = 0
    left_over: Sequence[str] = ()

    def wrong(self, verdict: str, *, told: bool) -> bool:
        """Return whether the run did not end with this verdict, nothing was told, or tasks were left over."""
        return self.verdict != verdict or bool(self.left_over) or (told and self.seconds_until_told is None)


def records_of(run: Path) -> list[Record]:
    """Return all records of a collected run in the order of their moments; unreadable lines are left out."""
    found = []
    for file in sorted(run.glob("events/*.jsonl")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("wall"), int | float):
                found.append(record)
    return sorted(found, key=lambda record: float(record["wall"]))


def verdict_of(run: Path) -> dict[str, Any]:
    """Return the verdict of a collected run as it was written; empty if there is none."""
    path = run / "verdict.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def name_of(record: Record) -> str:
    """Return the task that wrote a record, such as "worker0"."""
    return f"{record.get('job')}{record.get('index')}"


def seconds_until_training(records: Sequence[Record], since: float, hit: Sequence[str]) -> float | None:
    """Return after how many seconds the run trained again, by the records; None if it did not.

    `hit` are the tasks whose processes the fault ended; without any, the first step since the moment counts.
    A worker trains again with the first step of its new process. Where a ps was hit, all workers have to.
    """
    later = [record for record in records if float(record["wall"]) > since]
    started = {name_of(record): float(record["wall"]) for record in later if record.get("event") == "started"}
    if not started.keys() >= set(hit):
        return None
    back = max((started[task] for task in hit), default=since)
    workers = [task for task in hit if task.startswith("worker")] or ["worker0", "worker1"]
    steps = [record for record in later if record.get("event") == "step" and float(record["wall"]) > back]
    first = {name_of(record): float(record["wall"]) - since for record in reversed(steps)}
    return max(first[task] for task in workers) if first.keys() >= set(workers) else None


def steps_lost(records: Sequence[Record]) -> int:
    """Return the global steps that were applied and then undone by restoring an earlier checkpoint."""
    lost, highest = 0, 0
    for record in records:
        if record.get("event") == "step" and isinstance(record.get("global_step_after"), int):
            highest = max(highest, record["global_step_after"])
        elif record.get("event") == "restored" and isinstance(record.get("global_step"), int):
            lost += max(0, highest - record["global_step"])
            highest = min(highest, record["global_step"])
    return lost

"""Simulated runs to watch: answers of decide_run, and readings of their lead."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from psfleet.watch.lead_reading import Reading
from psfleet.watch.notices import Notice
from psfleet.watch.watched_run import WatchedRun
from trainer.contract.progress import Progress

MISSING = {"task": "worker1", "address": "10.0.0.2:2222", "reason": "connection refused"}


def progress(**values: object) -> Progress:
    """Return a reading of a run of 400 steps that is training."""
    return Progress.from_mapping({"phase": "training", "last_step": 400, **values})


def decided_run(workers: int, ps: int = 1, program: object = None, **training: object) -> dict[str, Any]:
    """Return a run with so many tasks, the ps on `node0` and a worker on each node."""
    tasks = [_task("ps", index, "node0", 2222 + index) for index in range(ps)]
    tasks += [_task("worker", index, f"node{index}", 2322 + index) for index in range(workers)]
    return {
        "id": "night",
        "tasks": tasks,
        "lead": tasks[ps],
        "settings": {"program": program, "training": training},
    }


def _task(job: str, index: int, host: str, port: int) -> dict[str, Any]:
    named = {"name": f"{job}{index}", "job": job, "index": index, "role": "ps" if job == "ps" else "client"}
    return {**named, "host": host, "address": f"10.0.0.{index}:{port}"}


def unit(
    job: str,
    index: int,
    state: str = "active",
    below: str = "running",
    *,
    code: int = 0,
    restarts: int = 0,
    heard: str = "",
) -> str:
    """Return what systemd shows of a task, whose watchdog has `heard` of it at a moment."""
    result = "exit-code" if state == "failed" else "success"
    return (
        f"Id=psfleet-{job}@{index}.service\nActiveState={state}\nSubState={below}\n"
        f"Result={result}\nExecMainStatus={code}\nNRestarts={restarts}\n"
        f"WatchdogTimestamp={heard}\n"
    )


class PlayedRun:
    """A run that goes on as the test says, looked at once a second; its hosts answer, unless `silent`."""

    def __init__(self, run: Mapping[str, Any], last_step: int = 100_000, *, silent: bool = False) -> None:
        """Begin at second 0 and step 0."""
        self.view = WatchedRun(run)
        self.hosts = () if silent else {task["host"] for task in run["tasks"]}
        self.workers = sum(task["job"] == "worker" for task in run["tasks"])
        self.last_step, self.seconds = last_step, 0
        self.counts = [0.0] * self.workers
        self.notes: list[Notice] = []

    def goes_on(self, seconds: int, rates: Sequence[float], **changes: object) -> list[str]:
        """Let the workers take so many steps a second; return what people hear of meanwhile."""
        heard: list[Notice] = []
        records = tuple(cast("Iterable[dict[str, object]]", changes.pop("records", ())))
        for _ in range(seconds):
            self.seconds += 1
            for host in self.hosts:
                heard += self.view.units.update(host, {}, float(self.seconds))
            self.counts = [count + rate for count, rate in zip(self.counts, rates, strict=True)]
            values: dict[str, object] = {
                "phase": "training",
                "wall": 1e9 + self.seconds,
                "global_step": int(sum(self.counts)),
                "last_step": self.last_step,
                "loss": 1.0,
                "contributions": [int(count) for count in self.counts],
            }
            reading = Reading(Progress.from_mapping(values | changes), records=records)
            heard += self.view.add_reading(reading, float(self.seconds))
        self.notes += heard
        return [note.text for note in heard]


def steady_run(workers: int, **training: object) -> PlayedRun:
    """Return a run whose workers have taken 50 steps a second each for 20 seconds, of which nobody heard."""
    run = PlayedRun(decided_run(workers, 1, None, **training))
    assert run.goes_on(20, [50] * workers) == []
    return run

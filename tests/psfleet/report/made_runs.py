"""Run folders written for the report: records as tasks write them, with whatever a test wants in them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.contract.record_fields import VERSION, WRITES, record_problems
from trainer.contract.records import events_file
from trainer.contract.settings import TrainingSettings
from trainer.contract.task_names import EVALUATOR

Record = dict[str, Any]
STEPS_PER_WINDOW = 10
SECONDS_PER_WINDOW = 0.5


def make_plan(workers: int = 2, ps: int = 1, **changes: str) -> ClusterPlan:
    """Each task on a host of its own; `changes` are of worker 1: `host`, `address`."""
    tasks = [PlannedTask("ps", index, f"ps-host{index}", f"10.1.0.{index}", 2222) for index in range(ps)]
    for index in range(workers):
        place: dict[str, str] = {"host": f"node{index}", "address": f"10.0.{index // 250}.{index % 250}"}
        tasks.append(
            PlannedTask("worker", index, **(place | (changes if index == 1 else {})), port=2223, gpus=(0,))
        )
    return ClusterPlan("made", tuple(tasks))


def make_run(folder: Path, plan: ClusterPlan | None = None, windows: int = 20) -> Path:
    """A run of the model linear in which all workers take turns; return its folder."""
    plan = plan or make_plan()
    (folder / "events").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan.to_json()))
    training = TrainingSettings(model="linear").as_dict()
    del training["steps"]  # as many as the windows have, whatever the tasks were told
    (folder / "settings.json").write_text(json.dumps({"training": training, "program": None}))
    for task in plan.tasks:
        records = worker_records(plan, task.index, windows) if task.job == "worker" else ps_records()
        write(folder, plan, task, records)
    return folder


def write(folder: Path, plan: ClusterPlan, task: PlannedTask, records: Sequence[Mapping[str, Any]]) -> None:
    """Write a task's records, each by its event and fields alone; all must be what the schema asks for."""
    _write(folder, plan, (task.job, task.index, task.host), records)


def write_evaluations(
    folder: Path, plan: ClusterPlan, found: Sequence[tuple[int, Mapping[str, object]]]
) -> None:
    """Let the evaluator have found metrics at these global steps, the last of them after the run."""
    evaluated = [
        {
            **{"event": "evaluated", "global_step": step, "metrics": metrics},
            **{"examples": 100, "fingerprint": "0123456789abcdef"},
        }
        for step, metrics in found
    ]
    over = {"event": "finished", "reason": "run over"}
    records = [started(50), *evaluated[:-1], over, started(51), evaluated[-1], over]
    _write(folder, plan, (EVALUATOR, 0, plan.tasks[-1].host), records)


def _write(
    folder: Path, plan: ClusterPlan, whose: tuple[str, int, str], records: Sequence[Mapping[str, Any]]
) -> None:
    job, index, host = whose
    lines = []
    for number, fields in enumerate(records):
        values = {
            **{"v": VERSION, "run_id": folder.name, "job": job, "index": index, "host": host},
            **{"pid": 100, "plan_hash": plan.hash, "release": "r1", "wall": 1.8e9, "monotonic": 1.0 + number},
            **fields,
        }
        assert not record_problems(values), record_problems(values)
        lines.append(json.dumps(values) + "\n")
    events_file(folder, job, index).write_text("".join(lines))


def ps_records() -> list[Record]:
    return [started(1), {"event": "finished", "reason": "run over", "monotonic": 30.0}]


def worker_records(plan: ClusterPlan, index: int, windows: int) -> list[Record]:
    """From start to end; the loss falls by a tenth in each window."""
    workers = len(plan.tasks_of("worker"))
    begin: list[Record] = [started(1000 + index)]
    if index == 0:
        held = {"ps0": {"variables": 2, "bytes": 8}}
        begin.append({"event": "initialised", "global_step": 0, "monotonic": 1.5, "ps_parameters": held})
    begin.append({"event": "peers_ready", "monotonic": 2.0, "global_step": 0, **nonces(plan)})
    steps = [step(number, workers, index) for number in range(windows)]
    last = windows * STEPS_PER_WINDOW
    end: Record = {"event": "finished", "reason": "last step", "local_step": last, "loss": 0.1}
    end |= {"global_step": last * workers, "seconds": 1.0, "examples": last, "monotonic": 2.5 + windows}
    if index > 0:
        return [*begin, *steps, end]
    counts = {f"worker{number}": last for number in range(workers)}
    evaluated = {"event": "evaluated", "global_step": last * workers, "monotonic": 2.2 + windows}
    end |= {"contributions": counts, "last_step": last * workers}
    return [*begin, *steps, evaluated | {"metrics": {"weight": 2.0, "bias": 10.0}}, end]


def started(nonce: int, **changes: object) -> Record:
    settings = TrainingSettings(model="linear").as_dict()
    versions = {"tensorflow": "2.21.0", "python": "3.11.2", "address": "10.0.0.1:2223"}
    of_release = {**versions, "writes": WRITES}
    return {
        "event": "started",
        "nonce": nonce,
        "settings": settings,
        **of_release,
        "monotonic": 1.0,
        **changes,
    }


def nonces(plan: ClusterPlan) -> Record:
    workers = {task.name: 1000 + task.index for task in plan.tasks_of("worker")}
    return {"ps_nonces": {"ps0": 7}, "worker_nonces": workers, "waited_seconds": 0.5}


def step(number: int, workers: int, index: int, **changes: object) -> Record:
    """The window of this number, from 0, of a worker that takes turns with the others."""
    pace = STEPS_PER_WINDOW * workers
    loss = (100 + index) * 0.9**number
    return {
        "event": "step",
        "local_step": (number + 1) * STEPS_PER_WINDOW,
        "steps": STEPS_PER_WINDOW,
        "global_step_before": number * pace,
        "global_step_after": (number + 1) * pace,
        "loss": loss,
        "loss_mean": loss,
        "examples": STEPS_PER_WINDOW,
        "seconds": SECONDS_PER_WINDOW,
        "staleness_mean": 1.0,
        "staleness_max": 2,
        "staleness_histogram": [2, 4, 4],
        "waiting_seconds": 0.1,
        "monotonic": 2.0 + (number + 1) * SECONDS_PER_WINDOW,
        **changes,
    }

"""Workers that trained on other ps than the rest, told as one run: what a split cluster leaves behind.

The trainer lets no worker train whose ps has no chief. So each side is a real run with a chief of its own,
and the records of one side's chief are told as those of another worker.
"""

import json
import shutil
from pathlib import Path

from tests.psfleet.evidence.run_folders import Record, plan_of, records, rewrite, write_plan
from trainer.contract.plan import ClusterPlan, Job

# What only a chief writes: events, and fields of `finished`.
_EVENTS_OF_CHIEF = {"initialised", "checkpointed", "evaluated"}
_FIELDS_OF_CHIEF = {"contributions", "last_step"}


def each_on_its_own_ps(ours: Path, theirs: Path, folder: Path) -> Path:
    """Two runs of one ps and one worker each: each worker learned the line alone."""
    return _told_as_one(ours, ["ps0", "worker0"], theirs, folder)


def third_worker_on_its_own_ps(ours: Path, theirs: Path, folder: Path) -> Path:
    """Two workers that share a ps, and the worker of another run as the third."""
    return _told_as_one(ours, ["ps0", "worker0", "worker1"], theirs, folder)


def _told_as_one(ours: Path, tasks: list[str], theirs: Path, folder: Path) -> Path:
    run = Path(shutil.copytree(ours, folder / ours.name))
    index = len(tasks) - 1
    plan = _plan_with(ours, tasks, theirs)
    for task in (*tasks, "evaluator0"):
        rewrite(run, task, [_of_plan(record, plan, index) for record in records(ours, task)])
    rewrite(run, f"worker{index}", [_as_worker(index, record, plan) for record in _of_worker(theirs)])
    training = json.loads((ours / "settings.json").read_text())["training"]
    del training["seed"]  # each side had its own
    write_plan(run, plan, training)
    return run


def _plan_with(ours: Path, tasks: list[str], theirs: Path) -> ClusterPlan:
    planned: list[tuple[Job, str]] = [
        ("ps" if task.startswith("ps") else "worker", str(records(ours, task)[0]["address"]))
        for task in tasks
    ]
    return plan_of(*planned, ("worker", str(records(theirs, "worker0")[0]["address"])))


def _of_plan(record: Record, plan: ClusterPlan, new_worker: int) -> Record:
    """The record as of this plan; a chief would have told that the new worker contributed nothing."""
    changed = record | {"plan_hash": plan.hash}
    if "contributions" in record:
        changed["contributions"] = record["contributions"] | {f"worker{new_worker}": 0}
    return changed


def _of_worker(theirs: Path) -> list[Record]:
    return [record for record in records(theirs, "worker0") if record["event"] not in _EVENTS_OF_CHIEF]


def _as_worker(index: int, record: Record, plan: ClusterPlan) -> Record:
    changed = {name: value for name, value in record.items() if name not in _FIELDS_OF_CHIEF}
    changed |= {"index": index, "plan_hash": plan.hash}
    if record["event"] == "peers_ready":
        changed["worker_nonces"] = {f"worker{index}": record["worker_nonces"]["worker0"]}
    if record["event"] == "gradients":
        of_worker = {
            name: {f"worker{index}": record[name]["worker0"]} for name in ("losses", "norms", "fits")
        }
        changed |= of_worker
    return changed

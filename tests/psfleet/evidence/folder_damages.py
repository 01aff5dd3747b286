"""Damages of a run's folder that need only the folder, for `CASES` of the tests and for the corpus.

adversaries/damages_from_real_runs.py has the damages that also need the real runs.
"""

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

from psfleet.evidence.run_manifest import Manifest
from tests.psfleet.evidence.run_folders import (
    Record,
    begin_with,
    drop,
    edit,
    events,
    lose_host,
    plan_of,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
    write_plan,
)
from trainer.contract.exit_codes import STOPPED

_TEN_MINUTES = 600.0


def cut_the_last_line(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[:-40])


def cut_in_the_middle(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[: len(content) // 3])


def double_every_line(run: Path, task: str = "worker1") -> None:
    rewrite(run, task, [record for record in records(run, task) for _ in range(2)])


def change_steps(run: Path, tasks: str, change: Callable[[int, Record], Record]) -> None:
    """Add `change(number, window)` to each window of steps of these tasks; a task's first window is 0."""
    for task in tasks.split():
        number = count()
        changed = [
            record | (change(next(number), record) if record["event"] == "step" else {})
            for record in records(run, task)
        ]
        rewrite(run, task, changed)


def set_losses(run: Path, loss: Callable[[int], float]) -> None:
    """Let window `number` of each worker have the loss `loss(number)`; the first window is 0."""
    change_steps(run, "worker0 worker1", lambda number, _: dict.fromkeys(("loss", "loss_mean"), loss(number)))


def lose_everything(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def reverse_the_steps(run: Path) -> None:
    steps, others = steps_and_others(run, "worker1")
    rewrite(run, "worker1", [*others[:-1], *reversed(steps), others[-1]])


def take_no_step(run: Path, tasks: str) -> None:
    drop(run, tasks, "step")
    edit(run, tasks, "finished", local_step=0)


def train_another_model(run: Path, model: str) -> None:
    tell_settings(run, model=model)
    begin_with(run, "worker0 worker1", model=model)


def shift_a_clock(run: Path) -> None:
    changed = [
        record | {"wall": record["wall"] + 600, "monotonic": record["monotonic"] - 3000}
        for record in records(run, "worker1")
    ]
    rewrite(run, "worker1", changed)


def lose_a_number_in_the_loss(run: Path) -> None:
    every, place = _with_a_window(run)
    lost = every[place] | {"loss": None, "loss_mean": None}
    rewrite(run, "worker1", [*every[:place], lost, *every[place + 1 :]])


def record_a_window_without_a_step(run: Path) -> None:
    every, place = _with_a_window(run)
    empty = every[place] | {"steps": 0, "global_step_before": every[place]["global_step_after"]}
    rewrite(run, "worker1", [*every[: place + 1], empty, *every[place + 1 :]])


def cut_the_chiefs_last_line(run: Path) -> None:
    _cut(events(run, "worker0"), leave_out=40)


def end_worker1_by_a_playbook(run: Path) -> None:
    """Nobody counted what the tasks exchanged, as on a host that keeps no journal."""
    tasks = json.loads((run / "tasks.json").read_text())
    ended = {"exit_code": STOPPED, "ended_by": "psfleet"}
    uncounted = {"bytes_received": None, "bytes_sent": None}
    changed = [task | uncounted | (ended if task["name"] == "worker1" else {}) for task in tasks]
    (run / "tasks.json").write_text(json.dumps(changed))


def lose_worker1(run: Path) -> None:
    events(run, "worker1").unlink(missing_ok=True)


def keep_an_older_log(run: Path) -> None:
    logs = run / "logs"
    logs.mkdir()
    (logs / "worker1.out").write_text("worker1 failed (diverged): loss is nan at local step 2\n")
    (logs / "worker2.out").write_text("Step: 100, global step: 200, loss: nan\n")


def empty_the_file_of_a_worker(run: Path) -> None:
    events(run, "worker1").write_bytes(b"")


def empty_the_file_of_the_ps(run: Path) -> None:
    events(run, "ps0").write_bytes(b"")


def lose_the_evaluation(run: Path) -> None:
    events(run, "evaluator0").unlink()


def shift_the_clock_of_the_chief(run: Path) -> None:
    for task in ("worker0", "evaluator0"):
        _shift(run, task, -_TEN_MINUTES)


def claim_a_good_accuracy(run: Path) -> None:
    edit(run, "worker0", "evaluated", metrics={"accuracy": 0.97, "cross_entropy": 0.08})


def change_a_loss_after_collection(run: Path) -> None:
    """A loss in the records of worker 1 is told a little lower than when the manifest was written."""
    Manifest.of(run).write(run)
    every = records(run, "worker1")
    last = max(number for number, record in enumerate(every) if record["event"] == "step")
    every[last]["loss"] *= 0.99
    rewrite(run, "worker1", every)


def leave_out_worker2(run: Path) -> None:
    """Records and plan know nothing of a worker that took its part."""
    plan = json.loads((run / "plan.json").read_text())
    known = [task for task in plan["tasks"] if (task["job"], task["index"]) != ("worker", 2)]
    left = plan_of(*((task["job"], f"{task['address']}:{task['port']}") for task in known))
    training = json.loads((run / "settings.json").read_text())["training"]
    write_plan(run, left, training)
    events(run, "worker2").unlink()
    for task in ("ps0", "worker0", "worker1", "evaluator0"):
        edit(run, task, "", plan_hash=left.hash)
    contributions = records(run, "worker0")[-1]["contributions"]
    counted = {worker: steps for worker, steps in contributions.items() if worker != "worker2"}
    edit(run, "worker0", "finished", contributions=counted)


def lose_the_host_of_worker2(run: Path) -> None:
    """Its host did not answer when the run was collected; the run may end well with two workers."""
    lose_host(run, "worker2", success=2)


def lose_the_host_of_worker2_after_it_was_collected(run: Path) -> None:
    """The same, but what worker 2 recorded is there: it trained for itself."""
    kept = records(run, "worker2")
    lose_host(run, "worker2", success=2)
    rewrite(run, "worker2", kept[:-1])


def lose_the_host_of_worker2_and_need_all(run: Path) -> None:
    """Its host did not answer, and all workers must have finished."""
    lose_host(run, "worker2", success="all_workers")


def _with_a_window(run: Path) -> tuple[list[Record], int]:
    """The records of worker 1, and the place of a window among them."""
    every = records(run, "worker1")
    return every, [place for place, record in enumerate(every) if record["event"] == "step"][28]


def _cut(file: Path, leave_out: int) -> None:
    file.write_bytes(file.read_bytes()[:-leave_out])


def _shift(run: Path, task: str, seconds: float) -> None:
    shifted = [
        record | {name: record[name] + seconds for name in ("wall", "monotonic")}
        for record in records(run, task)
    ]
    rewrite(run, task, shifted)

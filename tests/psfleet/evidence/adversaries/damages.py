"""Changes to a copy of a real run's folder; each function also gets the other runs."""

import json
import shutil
import tempfile
from pathlib import Path

from psfleet.evidence.run_manifest import Manifest
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.run_folders import (
    edit,
    evaluate,
    events,
    lose_host,
    plan_of,
    records,
    rewrite,
    write_plan,
)
from trainer.contract.exit_codes import STOPPED

_TEN_MINUTES = 600.0


def cut_the_chiefs_last_line(run: Path, _runs: RealRuns) -> None:
    _cut(events(run, "worker0"), leave_out=40)


def take_the_records_of_another_run(run: Path, runs: RealRuns) -> None:
    shutil.copy(events(runs.of("noisy"), "worker1"), events(run, "worker1"))
    edit(run, "worker1", "", run_id="20260101-another")


def take_the_records_of_another_run_as_its_own(run: Path, runs: RealRuns) -> None:
    """Run id and plan are written over, so that they seem to be of this run."""
    plan_hash = records(run, "worker1")[0]["plan_hash"]
    shutil.copy(events(runs.of("noisy"), "worker1"), events(run, "worker1"))
    edit(run, "worker1", "", plan_hash=plan_hash)


def keep_an_older_file(run: Path, runs: RealRuns) -> None:
    """An earlier run had a third worker."""
    shutil.copy(events(runs.of("sync"), "worker2"), events(run, "worker2"))
    edit(run, "worker2", "", run_id="20260101-another")


def keep_older_records(run: Path, runs: RealRuns) -> None:
    """The file of worker 1 was not empty when the run began."""
    older = [record | {"run_id": "20260101-another"} for record in records(runs.of("noisy"), "worker1")]
    rewrite(run, "worker1", [*older, *records(run, "worker1")])


def end_worker1_by_a_playbook(run: Path, _runs: RealRuns) -> None:
    """Nobody counted what the tasks exchanged, as on a host that keeps no journal."""
    tasks = json.loads((run / "tasks.json").read_text())
    ended = {"exit_code": STOPPED, "ended_by": "psfleet"}
    uncounted = {"bytes_received": None, "bytes_sent": None}
    changed = [task | uncounted | (ended if task["name"] == "worker1" else {}) for task in tasks]
    (run / "tasks.json").write_text(json.dumps(changed))


def lose_worker1(run: Path, _runs: RealRuns) -> None:
    events(run, "worker1").unlink(missing_ok=True)


def keep_an_older_log(run: Path, _runs: RealRuns) -> None:
    logs = run / "logs"
    logs.mkdir()
    (logs / "worker1.out").write_text("worker1 failed (diverged): loss is nan at local step 2\n")
    (logs / "worker2.out").write_text("Step: 100, global step: 200, loss: nan\n")


def empty_the_file_of_a_worker(run: Path, _runs: RealRuns) -> None:
    events(run, "worker1").write_bytes(b"")


def empty_the_file_of_the_ps(run: Path, _runs: RealRuns) -> None:
    events(run, "ps0").write_bytes(b"")


def lose_the_evaluation(run: Path, _runs: RealRuns) -> None:
    events(run, "evaluator0").unlink()


def shift_the_clock_of_the_chief(run: Path, _runs: RealRuns) -> None:
    for task in ("worker0", "evaluator0"):
        _shift(run, task, -_TEN_MINUTES)


def read_the_parameters_of_another_run(run: Path, runs: RealRuns) -> None:
    other = records(runs.of("alone"), "worker0")[-1]["fingerprint"]
    edit(run, "worker1", "finished", fingerprint=other)


def evaluate_an_earlier_checkpoint(run: Path, runs: RealRuns) -> None:
    """Who took no part evaluates what the chief's host would hold had it not saved for the last time."""
    with tempfile.TemporaryDirectory() as folder:
        chief = Path(shutil.copytree(runs.chief_of("noisy"), Path(folder) / "worker0"))
        events(chief, "evaluator0").unlink()
        every = records(chief, "worker0")
        last = max(number for number, record in enumerate(every) if record["event"] == "checkpointed")
        rewrite(chief, "worker0", [*every[:last], *every[last + 1 :]])
        evaluate(chief, run)


def claim_a_good_accuracy(run: Path, _runs: RealRuns) -> None:
    edit(run, "worker0", "evaluated", metrics={"accuracy": 0.97, "cross_entropy": 0.08})


def change_a_loss_after_collection(run: Path, _runs: RealRuns) -> None:
    """A loss in the records of worker 1 is told a little lower than when the manifest was written."""
    Manifest.of(run).write(run)
    every = records(run, "worker1")
    last = max(number for number, record in enumerate(every) if record["event"] == "step")
    every[last]["loss"] *= 0.99
    rewrite(run, "worker1", every)


def leave_out_worker2(run: Path, _runs: RealRuns) -> None:
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


def lose_the_host_of_worker2(run: Path, _runs: RealRuns) -> None:
    """Its host did not answer when the run was collected; the run may end well with two workers."""
    lose_host(run, "worker2", success=2)


def lose_the_host_of_worker2_after_it_was_collected(run: Path, _runs: RealRuns) -> None:
    """The same, but what worker 2 recorded is there: it trained for itself."""
    kept = records(run, "worker2")
    lose_host(run, "worker2", success=2)
    rewrite(run, "worker2", kept[:-1])


def lose_the_host_of_worker2_and_need_all(run: Path, _runs: RealRuns) -> None:
    """Its host did not answer, and all workers must have finished."""
    lose_host(run, "worker2", success="all_workers")


def _cut(file: Path, leave_out: int) -> None:
    file.write_bytes(file.read_bytes()[:-leave_out])


def _shift(run: Path, task: str, seconds: float) -> None:
    shifted = [
        record | {name: record[name] + seconds for name in ("wall", "monotonic")}
        for record in records(run, task)
    ]
    rewrite(run, task, shifted)

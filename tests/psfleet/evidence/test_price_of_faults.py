"""The price of faults: steps that restores undid, seconds without training, the useful part of the time."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from psfleet.evidence.price_of_faults import price_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.task_records import TaskRecords
from tests.psfleet.evidence.run_folders import records, rewrite, verdict_of
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask


@dataclass
class _Worker:
    """The records of a worker, with times in seconds of its own clock."""

    index: int
    records: list[Record] = field(default_factory=list)
    pid: int = 1

    def write(self, event: str, at: float, **fields: object) -> "_Worker":
        self.records.append(
            Record(event, "run", "worker", self.index, "host", self.pid, "", "", 0.0, at, fields)
        )
        return self

    def step(self, at: float, seconds: float, before: int, after: int) -> "_Worker":
        steps = {"local_step": after, "steps": after - before, "examples": 1, "seconds": seconds}
        return self.write("step", at, global_step_before=before, global_step_after=after, **steps)


def _price(*workers: _Worker, replication: str = "async", success: str = "all_workers") -> dict[str, Any]:
    tasks = {f"worker{worker.index}": TaskRecords("", tuple(worker.records)) for worker in workers}
    expected = tuple(RunTask("worker", worker.index, "host") for worker in workers)
    rules = ReplicationRules(replication, len(workers), len(workers))
    return price_of(Run(Path(), "run", rules=rules, expected=expected, tasks=tasks, success=success))


def _chief_that_lost_a_ps() -> _Worker:
    chief = _Worker(0).write("started", 90, nonce=1).write("initialised", 99, global_step=0)
    chief.step(110, 10, 0, 100).write("recovering", 111, reason="lost")
    chief.write("checkpoint_damaged", 119, global_step=80, path="run/checkpoints/model.ckpt-80", reason="cut")
    chief.write("restored", 120, global_step=50, checkpoint="model.ckpt-50")
    return chief.step(140, 20, 50, 250)


def test_a_run_without_faults_has_no_price() -> None:
    one, other = (_Worker(index).step(10, 10, 0, 50).step(20, 10, 50, 100) for index in (0, 1))
    assert _price(one, other) == {
        "steps_lost": 0, "still_seconds": 0.0, "goodput": 1.0, "restores": [], "ps_restores": []
    }  # fmt: skip


@pytest.mark.parametrize(("success", "goodput"), [("chief", 1.0), ("all_workers", 0.625)])
def test_the_time_before_a_worker_joined_is_not_the_runs_if_the_run_does_not_need_it(
    success: str, goodput: float
) -> None:
    chief, late = _Worker(0).write("started", 0, nonce=1), _Worker(1).write("started", 14, nonce=2)
    chief.write("peers_ready", 0, worker_nonces={"worker0": 1}, global_step=0)
    chief.step(10, 10, 0, 50).step(20, 10, 50, 100)
    late.write("peers_ready", 15, worker_nonces={"worker0": 1, "worker1": 2}, global_step=75)
    late.step(20, 5, 75, 100)
    assert _price(chief, late, success=success)["goodput"] == goodput


def test_steps_undone_by_a_restore_count_as_lost() -> None:
    # The other worker has another clock, and saw ten more steps.
    other = _Worker(1).step(1010, 10, 0, 110).step(1042, 20, 55, 250)
    found = _price(_chief_that_lost_a_ps(), other)
    assert found["restores"] == [{"global_step": 50, "steps_lost": 60, "damaged": ("model.ckpt-80",)}]
    assert found["steps_lost"] == 60
    assert found["still_seconds"] == 12.0
    lost_seconds = 10 * 50 / 100 + 10 * 60 / 110
    assert found["goodput"] == pytest.approx((30 + 30 - lost_seconds) / (2 * 42), abs=1e-4)


def test_of_steps_that_a_ps_lost_alone_its_part_is_lost() -> None:
    chief, other = (_Worker(index).step(10, 10, 0, 100) for index in (0, 1))
    chief.write("ps_restored", 10, global_step=100, task="ps1", checkpoint_step=60, fingerprint="a")
    for worker in (chief, other):
        worker.step(20, 10, 100, 200)
    tasks = {f"worker{its.index}": TaskRecords("", tuple(its.records)) for its in (chief, other)}
    expected = (
        *(RunTask("ps", index, "host") for index in (0, 1)),
        *(RunTask("worker", index, "host") for index in (0, 1)),
    )
    run = Run(Path(), "run", rules=ReplicationRules("async", 2, 2), expected=expected, tasks=tasks)
    found = price_of(run)
    lost = {"task": "ps1", "global_step": 100, "checkpoint_step": 60, "steps_lost": 40}
    assert (found["ps_restores"], found["restores"], found["steps_lost"]) == ([lost], [], 0)
    # Half of 40 steps, of 400 in 40 seconds.
    assert found["goodput"] == pytest.approx(38 / 40)


def test_the_loss_of_one_worker_reduces_only_its_own_time() -> None:
    chief = _Worker(0).step(10, 10, 0, 100).step(40, 30, 100, 400)
    other = _Worker(1).step(10, 10, 0, 100)
    found = _price(chief, other)
    assert (found["still_seconds"], found["steps_lost"]) == (0.0, 0)
    assert found["goodput"] == pytest.approx(50 / 80)


def test_the_loss_of_the_chief_does_not_end_the_time_of_the_others() -> None:
    chief = _Worker(0).step(10, 10, 0, 100)
    found = _price(chief, _Worker(1).step(10, 10, 0, 100).step(40, 30, 100, 400))
    assert found["goodput"] == pytest.approx(50 / 80)


@pytest.mark.parametrize(("replication", "goodput"), [("async", (16 + 20) / 40), ("sync", (16 + 16) / 40)])
def test_a_save_stops_the_chief_and_in_a_synchronous_run_also_the_others(
    replication: str, goodput: float
) -> None:
    chief = _Worker(0).write("checkpointed", 10, global_step=50, path="", seconds=5.0, stopped_seconds=4.0)
    chief.step(20, 20, 0, 100)
    assert _price(chief, _Worker(1).step(20, 20, 0, 100), replication=replication)["goodput"] == goodput


def test_the_time_while_people_had_stopped_the_run_does_not_count() -> None:
    chief = _Worker(0).step(10, 10, 0, 100).write("finished", 10, reason="stopped")
    chief.pid = 2
    chief.write("started", 1000, nonce=2).write("restored", 1001, global_step=100)
    found = _price(chief.step(1012, 10, 100, 200))
    assert (found["still_seconds"], found["restores"]) == (2.0, [])


def test_a_verdict_contains_the_price_of_faults(run: Path) -> None:
    assert 0.5 < verdict_of(run).figures["faults"]["goodput"] <= 1
    chief = records(run, "worker0")
    steps = [record["global_step_after"] for record in chief if record["event"] == "step"]
    restored = chief[0] | {"event": "restored", "global_step": 0, "checkpoint": "model.ckpt-0"}
    rewrite(run, "worker0", [*chief[:-1], restored, chief[-1]])
    (restore,) = verdict_of(run).figures["faults"]["restores"]
    assert restore["steps_lost"] == max(steps)

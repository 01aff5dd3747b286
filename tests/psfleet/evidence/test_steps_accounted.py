"""Steps accounted: true records never contradict, and a missing worker always does."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from psfleet.evidence.answer import Answer
from psfleet.evidence.contributions import contributions_add_up
from psfleet.evidence.reading import read_run
from psfleet.evidence.record_checks import no_restart_from_zero
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.steps_accounted import Tally, steps_accounted
from psfleet.evidence.verdict import judge_run
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.run_folders import records, rewrite
from tests.psfleet.evidence.simulated_runs import Fields, Simulation, Worker, run_of, synchronous_run
from trainer.contract.run_tasks import RunTask

SEEDS = range(25)


def judged(folder: Path) -> Answer:
    return steps_accounted(read_run(folder))


@pytest.mark.parametrize("faults", [False, True], ids=["undisturbed", "faults"])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_no_order_of_steps_and_no_fault_contradicts_true_records(workers: int, *, faults: bool) -> None:
    for seed in SEEDS:
        check = steps_accounted(Simulation(seed, workers, faults=faults).run(1000))
        assert check.ok, (seed, check.detail)


@pytest.mark.parametrize(
    ("seed", "workers", "turns"),
    [(257, 3, 1000), (841, 2, 1000), (4743, 3, 1000), (321, 2, 1000), (997, 2, 1000), (88, 2, 1500)],
)
def test_steps_hidden_by_a_restore_do_not_contradict_true_records(
    seed: int, workers: int, turns: int
) -> None:
    """Rare cases: the global step went back within a window, or after the death of a process."""
    check = steps_accounted(Simulation(seed, workers, faults=True).run(turns))
    assert check.ok, check.detail


@pytest.mark.parametrize(("workers", "replicas"), [(2, 2), (3, 2), (5, 2)])
def test_late_gradients_do_not_contradict_true_records(workers: int, replicas: int) -> None:
    for seed in SEEDS[:8]:
        check = steps_accounted(synchronous_run(seed, workers, replicas))
        assert check.ok, (seed, check.detail)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_an_unrecorded_process_that_moves_the_global_step_is_found(workers: int) -> None:
    """The process takes a twentieth of all steps in each run of about two thousand steps."""
    for seed in SEEDS[:8]:
        check = steps_accounted(Simulation(seed, workers, faults=False, stranger=0.02).run(6000))
        assert check.ok is False, seed
        assert "steps of others, which recorded" in check.detail


def forge_the_steps_of_others(run: Path, factor: int) -> None:
    """Each worker trains alone, and lets its global step move as if others took most of the steps."""
    for worker in ("worker0", "worker1"):
        told = records(run, worker)
        done = 0
        for record in told:
            if record["event"] == "step":
                record["global_step_before"] = factor * done
                done += record["steps"]
                record["global_step_after"] = factor * done
        rewrite(run, worker, told)


@pytest.mark.parametrize(
    ("factor", "said"),
    [(3, r"worker0 saw \d+ steps .* at most"), (1, "saw 0 steps of others, which recorded .* at least")],
)
def test_forged_counters_of_workers_that_train_alone_are_found(run: Path, factor: int, said: str) -> None:
    forge_the_steps_of_others(run, factor)
    check = judged(run)
    assert check.ok is False
    assert re.search(said, check.detail)


def test_a_verdict_on_three_hundred_workers_stays_readable() -> None:
    """The verdict has no more lines than for two workers, and each line has a limited length."""
    run = Simulation(1, 300, faults=False).run(10_000)
    servers = tuple(RunTask("ps", index, "host") for index in range(40))
    verdict = judge_run(replace(run, expected=run.expected + servers), EvidenceSettings())
    lines = [text for text, _ in as_lines(verdict, Path())]
    assert any("and 296 more" in line for line in lines)
    assert len(lines) < 40
    assert max(map(len, lines)) < 400


# The records of a worker in order: a window (before, after, steps), the step of a restored checkpoint, a
# stop, a broken session, or the start of a new process.
Story = list[tuple[int, int, int] | int | str]


def tens(first: int, last: int) -> Story:
    return [(step, step + 10, 10) for step in range(first, last, 10)]


def told(
    *stories: Story,
    gradients: int = 0,
    replication: str = "sync",
    settings: Fields | None = None,
    **counted: int,
) -> Run:
    """Return a run of workers, chief first, with these records; each ends well, at the sum of the counts.

    `gradients` is the number of gradients in a step of this `replication`; 0 is an asynchronous run.
    """
    workers = [Worker(index, random.Random(1), settings=settings or {}) for index in range(len(stories))]
    last = sum(counted.values()) // (gradients or 1)
    for worker, story in zip(workers, stories, strict=True):
        worker.start(0)
        if worker.index == 0:
            worker.write("initialised", global_step=0)
        for event in story:
            if isinstance(event, tuple):
                before, after, steps = event
                worker.local_step += steps
                span = {"global_step_before": before, "global_step_after": after}
                worker.write("step", local_step=worker.local_step, steps=steps, examples=steps, **span)
            elif isinstance(event, int):
                worker.write("restored", global_step=event, checkpoint="c")
            elif event == "began anew":
                worker.start(0)
            elif event in {"stopped", "waited in vain", "last step"}:
                if event == "waited in vain":
                    worker.pid += 1
                    worker.write("started", nonce=77)
                reason = "last step" if event == "last step" else "stopped"
                worker.write("finished", reason=reason, local_step=worker.local_step, global_step=0)
            else:
                worker.write("recovering", reason=event)
        worker.finish(global_step=last, last_step=last, contributions=counted)
    rules = ReplicationRules(replication, len(stories), gradients)
    return run_of(workers, rules if gradients else ReplicationRules("async", len(stories)))


@pytest.mark.parametrize(
    ("stories", "gradients", "accepted"),
    [
        # One worker took 10 of 20 steps, so the other must have taken exactly 10.
        ([[(0, 20, 10)], [(0, 20, 10)]], 0, True),
        ([[(0, 20, 10)], [(0, 20, 9)]], 0, False),
        ([[(0, 20, 10)], [(0, 20, 11)]], 0, False),
        ([[(0, 20, 10)], []], 0, False),
        # The sum is right, but the chief saw steps in its first windows that happened only later.
        ([[*((n, n + 20, 10) for n in range(0, 80, 20)), *tens(80, 120)], [(80, 160, 40)]], 0, False),
        # Ten steps of two gradients: others offered at least as many as the worker did not.
        ([[(0, 10, 10)], [(0, 10, 5)], [(0, 10, 5)]], 2, True),
        ([[(0, 10, 10)], [(0, 10, 5)], [(0, 10, 4)]], 2, False),
        # Late gradients count neither as others' steps nor as the worker's own.
        ([[(0, 10, 4), "lost", (10, 20, 10)], [(0, 20, 26)], [(0, 10, 4), "lost", (10, 20, 10)]], 2, False),
        ([[(0, 10, 5), "lost", (10, 20, 10)], [(0, 20, 26)], [(0, 10, 5), "lost", (10, 20, 10)]], 2, True),
        ([[(0, 10, 20), "lost", (10, 20, 10)], [(10, 20, 10)], [(10, 20, 10)]], 2, False),
    ],
)
def test_steps_seen_of_others_must_equal_the_steps_that_these_recorded(
    stories: list[Story], gradients: int, *, accepted: bool
) -> None:
    check = steps_accounted(told(*stories, gradients=gradients))
    assert check.ok is accepted, check.detail
    assert accepted or " steps of others, which recorded " in check.detail


@pytest.mark.parametrize(
    ("told_per_call", "sessions", "gradients", "accepted"),
    [
        (10, 1, 0, True),
        (9, 1, 0, False),
        (5, 2, 0, True),
        (4, 2, 0, False),
        (None, 9, 0, False),
        (None, 10, 0, True),
        # Impossible settings of steps_per_call allow no unrecorded step.
        (33, 1, 0, False),
        ("10", 1, 0, False),
        (-10, 9, 0, False),
        # A call of a synchronous run has several steps, too.
        (10, 1, 2, True),
        (9, 1, 2, False),
        # With several batches to a push, a call has fewer steps, and at least those of a pull.
        ((20, 2, None), 1, 0, True),
        ((20, 3, None), 1, 0, False),
        ((1, 2, 20), 1, 0, True),
        ((1, 2, "20"), 1, 0, False),
    ],
)
def test_a_broken_session_may_leave_one_call_of_steps_unrecorded(
    told_per_call: object, sessions: int, gradients: int, *, accepted: bool
) -> None:
    """The chief saw 20 steps or gradients of the other worker, which recorded 10."""
    told_of_calls = told_per_call if isinstance(told_per_call, tuple) else (told_per_call,)
    settings = dict(zip(("steps_per_call", "push_every", "pull_every"), told_of_calls, strict=False))
    settings = {name: value for name, value in settings.items() if value is not None}
    chief: Story = [(0, 20, 20)] if gradients else [(0, 30, 10)]
    other: Story = [(0, 10 if gradients else 20, 10), *["lost"] * sessions]
    own = 20 if gradients else 10
    run = told(chief, other, gradients=gradients, settings=settings, worker0=own, worker1=20)
    assert steps_accounted(run).ok is accepted
    assert contributions_add_up(run).ok is accepted


@pytest.mark.parametrize(
    ("before", "after", "at_least", "at_most"),
    [(10, 20, 10, 10), (5, 25, 10, 30), (12, 18, 0, 10), (9, 20, 10, 20), (10, 21, 10, 20), (30, 40, 0, 0)],
)
def test_windows_that_only_touch_a_range_are_not_counted_in_it(
    before: int, after: int, at_least: int, at_most: int
) -> None:
    """Three windows of ten steps, (0, 10], (10, 20] and (20, 30]."""
    tally = Tally(told(tens(0, 30), [], worker0=30).windows)
    assert (tally.at_least(before, after), tally.at_most(before, after)) == (at_least, at_most)


@pytest.mark.parametrize(
    ("chief", "other", "counted", "accepted"),
    [
        # 20 steps were undone, and 71 by two restored checkpoints; but no earlier 50 steps.
        ([*tens(0, 100), 80, *tens(80, 120)], [], (120, 0), True),
        ([*tens(0, 80), 10, *tens(10, 100), 99, (99, 120, 21)], [], (120, 0), True),
        ([(0, 70, 170), *tens(70, 100), 80, *tens(80, 120)], [], (120, 0), False),
        ([*tens(0, 100), 80, *tens(80, 120)], [], (80, 0), True),
        ([*tens(0, 100), 80, *tens(80, 120)], [], (79, 0), False),
        # Behind its last window a killed process may have taken 20 steps and no more, a stopped one none.
        (tens(0, 50), [(50, 60, 10), "began anew", (80, 100, 20)], (50, 50), True),
        (tens(0, 50), [(50, 60, 10), "began anew", (80, 100, 20)], (50, 51), False),
        (tens(0, 50), [(50, 60, 10), "stopped", "began anew", (80, 100, 20)], (50, 50), False),
        (tens(0, 50), [(50, 60, 10), "began anew", (60, 100, 40)], (50, 51), False),
        (tens(0, 50), tens(50, 100), (50, 49), False),
        # A session that broke may hide one step, no more.
        (tens(0, 50), [*tens(50, 90), "lost", (91, 100, 9)], (50, 50), True),
        (tens(0, 50), [*tens(50, 90), "lost", (92, 100, 8)], (50, 50), False),
    ],
)
def test_counts_may_differ_from_records_only_by_explained_steps(
    chief: Story, other: Story, counted: tuple[int, int], *, accepted: bool
) -> None:
    answer = contributions_add_up(told(chief, other, worker0=counted[0], worker1=counted[1]))
    assert answer.ok is accepted, answer.detail


@pytest.mark.parametrize(("ended", "accepted"), [("stopped", True), ("last step", False)])
def test_only_the_last_towers_of_a_stopped_server_may_be_unrecorded(ended: str, *, accepted: bool) -> None:
    other: Story = [(0, 45, 45), ended, "began anew", (50, 100, 50)]
    run = told([(0, 100, 100)], other, gradients=2, replication="in_graph", worker0=100, worker1=100)
    assert contributions_add_up(run).ok is accepted


@pytest.mark.parametrize(("towers", "said"), [(12, "12 at least"), (8, "8 at most")])
def test_a_difference_in_towers_between_client_and_worker_is_found(towers: int, said: str) -> None:
    run = told([(0, 10, 10)], [(0, 10, towers)], gradients=2, replication="in_graph")
    assert f"saw 10 steps of worker1, which recorded {said}" in steps_accounted(run).detail


BACK = "worker0: the global step went back from 100 to 80, and no checkpoint explains it"


@pytest.mark.parametrize(
    ("story", "ok", "said"),
    [
        (tens(0, 100), True, "initialised once"),
        ([*tens(0, 100), 80, *tens(80, 120)], True, "initialised once, restored from a checkpoint 1 time"),
        ([*tens(0, 100), 81, *tens(80, 120)], False, BACK),
        ([*tens(0, 100), *tens(80, 120)], False, BACK),
    ],
)
def test_only_a_restored_checkpoint_explains_a_lower_global_step(
    story: Story, *, ok: bool, said: str
) -> None:
    run = told(story)
    check = no_restart_from_zero(run)
    assert (check.ok, check.detail) == (ok, said)
    damaged = replace(run, tasks={"worker0": replace(run.tasks["worker0"], unreadable=("a line",))})
    assert no_restart_from_zero(damaged).ok is (ok or None)


def test_unwritten_steps_of_a_killed_process_are_accepted_also_before_a_process_that_met_no_others() -> None:
    """Worker 1 is killed with 20 unwritten steps, is stopped while it waits, and is resumed."""
    chief: Story = [*tens(0, 80), (100, 200, 50)]
    run = told(chief, ["waited in vain", "began anew", (100, 200, 50)], worker0=130, worker1=70)
    assert steps_accounted(run).ok, steps_accounted(run).detail
    assert contributions_add_up(run).ok, contributions_add_up(run).detail

"""Unrecorded steps of a program must not count as steps of other workers."""

import random
from itertools import accumulate
from pathlib import Path

import pytest

from psfleet.evidence.step_numbers import first_overfull_end, spans_of
from psfleet.evidence.task_records import Window
from tests.psfleet.evidence.run_folders import (
    Record,
    checks,
    detail,
    edit,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
)
from tests.psfleet.evidence.simulated_runs import Simulation

WORKERS = ("worker0", "worker1")


Told = list[tuple[int, int, int]]  # windows: the global step before and after, and the worker's own steps


def tell(run: Path, *of_workers: Told) -> None:
    """Let the workers have recorded these windows."""
    for worker, windows in zip(WORKERS, of_workers, strict=True):
        (step, *_), (first, *others, last) = steps_and_others(run, worker)
        told, done = [], 0
        for number, (before, after, steps) in enumerate(windows, 1):
            done += steps
            losses = {"loss": 1 / number, "loss_mean": 1 / number}
            counts = {"local_step": done, "steps": steps}
            told.append(step | counts | losses | {"global_step_before": before, "global_step_after": after})
        rewrite(run, worker, [first, *told, *others, last | {"local_step": done}])


def every(nth: int, windows: int) -> Told:
    """Windows of two steps; the worker trains alone, and records only every `nth` window."""
    return [(2 * nth * place if place else nth - 1, 2 * nth * (place + 1), 2) for place in range(windows)]


def alone(moves: list[int]) -> Told:
    """Windows of a worker that moves its own global step by these amounts, with one step for each."""
    return [(reached - moved, reached, 1) for moved, reached in zip(moves, accumulate(moves), strict=True)]


# Workers with their own ps that record all steps but one; and workers with two optimizers, where a step
# of either may count twice, or not at all.
BUT_ONE = [[1] * 499 + [2] + [1] * 499] * 2
UNEVEN = [[random.Random(seed).choice([1, 2, 3]) for _ in range(500)] for seed in (1, 2)]


@pytest.mark.parametrize("moves", [BUT_ONE, UNEVEN], ids=["but one", "uneven"])
def test_workers_that_train_alone_record_too_many_steps_in_some_range(
    recorded: Path, moves: list[list[int]]
) -> None:
    tell(recorded, *map(alone, moves))
    verdict = verdict_of(recorded)
    assert verdict.verdict == "not proven"
    assert "steps_numbered" in checks(verdict, False)
    assert "the workers did not move one global step" in detail(verdict, "steps_numbered")
    assert verdict.headline == "NOT PROVEN: nothing shows that the workers trained one model together"


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_shared_steps_in_any_order_all_have_a_number(workers: int) -> None:
    for seed in range(25):
        run = Simulation(seed, workers, faults=False).run(1000)
        lives = [process.windows for worker in run.workers for process in worker.processes]
        assert first_overfull_end(span for windows in lives for span in spans_of(windows)) is None, seed


def test_the_first_range_with_more_steps_than_numbers_is_found() -> None:
    assert first_overfull_end([(0, 4, 2), (0, 4, 2)]) is None
    assert first_overfull_end([(0, 4, 2), (0, 4, 3)]) == 4
    assert first_overfull_end([(0, 10, 5), (2, 4, 2), (2, 4, 1)]) == 4
    assert first_overfull_end([(5, 6, 1), (0, 6, 5), (6, 7, 1)]) is None
    assert first_overfull_end([(3, 3, 1)]) == 3
    assert first_overfull_end([]) is None


def windows(*told: tuple[int, int, int, int]) -> list[Window]:
    """Return windows of (before, after, steps, unplaced steps)."""
    unknown = (0, 1.0, None, None, None, None, None, 0, None)
    return [Window(0, steps, before, after, *unknown, unplaced) for before, after, steps, unplaced in told]


def test_a_step_without_a_place_counts_for_its_window_or_a_neighbouring_one() -> None:
    assert list(spans_of(windows((0, 1, 1, 0), (1, 9, 5, 2), (9, 12, 3, 3)))) == [
        (0, 1, 1),
        (1, 9, 3),
        (0, 12, 2),
        (9, 12, 0),
    ]
    assert list(spans_of(windows((0, 1, 1, 2), (1, 9, 5, 0)))) == [(0, 1, 0), (1, 9, 5)]
    # A counter fetched with a step has the value before or after it: 0, 2, 3 for the steps 1, 3, 4.
    fetched = [(0, 0, 1, 1), (0, 2, 1, 1), (2, 3, 1, 1), (3, 4, 1, 1)]
    assert first_overfull_end(spans_of(windows(*fetched))) is None
    # Two workers that each count alone have twice as many steps, whichever value they read.
    alone = [(max(step - 1, 0), step, 1, 1) for step in range(30)]
    assert first_overfull_end([*spans_of(windows(*alone)), *spans_of(windows(*alone))]) is not None


@pytest.mark.parametrize(
    ("nth", "windows", "said"),
    [
        (10, 100, "its records show 400 of 1991 steps: not every step was recorded."),
        (3, 100, "its records show 400 of 598 steps"),
        (
            2,
            100,
            "worker0 recorded exactly one of 2 global steps in 99 of 99 windows: steps of others never come "
            "so evenly, a worker that skips records does.",
        ),
        (2, 4, "worker0 recorded exactly one of 2 global steps"),
        (2, 3, "worker0 recorded only 6 of 11 steps: too few to distinguish"),
    ],
)
def test_workers_that_train_alone_and_record_only_some_steps_are_not_proven(
    recorded: Path, nth: int, windows: int, said: str
) -> None:
    tell(recorded, *[every(nth, windows)] * 2)
    verdict = verdict_of(recorded)
    assert verdict.verdict == "completed", verdict.failing
    assert "steps_interleave" not in checks(verdict, True, False, None)
    assert f"the workers trained one model together: {said}" in "\n".join(verdict.not_shown)


def again(every: list[Record]) -> list[Record]:
    """The records as those of a later process."""
    return [record | {"pid": 99999, "monotonic": record["monotonic"] + 1e6} for record in every]


def test_a_program_that_started_over_is_not_proven_by_its_earlier_evaluation(recorded: Path) -> None:
    """The first process evaluated well at a higher global step; the model that is left did not learn."""
    for worker in WORKERS:
        every = records(recorded, worker)
        edit(recorded, worker, "evaluated", global_step=300, metrics={"weight": 0.5})
        rewrite(recorded, worker, [*every[:-1], *again(records(recorded, worker))])
    verdict = verdict_of(recorded, goals={"weight": {"minimum": 1.8}})
    assert checks(verdict, False) >= {"goals_reached"}
    assert "weight is 0.5000" in detail(verdict, "goals_reached")
    verdict = verdict_of(recorded, goals={"weight": {"maximum": 0.5}})
    assert verdict.verdict != "proven"
    assert "It is not shown that the model holds all that worker0 trained: its global step fell from" in (
        "\n".join(verdict.not_shown)
    )


def test_metrics_of_one_global_step_are_merged_and_the_later_value_counts(recorded: Path) -> None:
    (evaluated,), others = steps_and_others(recorded, "worker1", "evaluated")
    told = [
        evaluated | {"global_step": 10_000, "metrics": metrics}
        for metrics in ({"weight": 0.0, "speed": 5.0}, {"weight": 2.0})
    ]
    rewrite(recorded, "worker1", [*others[:-1], *told, others[-1]])
    asked = {"weight": {"minimum": 1.8}, "speed": {"minimum": 5}}
    assert "goals_reached" in checks(verdict_of(recorded, goals=asked), True)

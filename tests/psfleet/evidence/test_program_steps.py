"""Steps that a program of one's own does not record: they must not pass for steps of other workers."""

from pathlib import Path

import pytest

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

WORKERS = ("worker0", "worker1")


def tell_every(run: Path, nth: int, windows: int, window_steps: int = 2) -> None:
    """Let each worker count global steps of its own, and record every `nth` of them only."""
    for worker in WORKERS:
        (step, *_), others = steps_and_others(run, worker)
        told: list[Record] = []
        for number in range(windows):
            before = number * window_steps * nth
            told.append(
                step
                | {
                    "local_step": (number + 1) * window_steps,
                    "steps": window_steps,
                    "global_step_before": before if number else nth - 1,
                    "global_step_after": before + window_steps * nth,
                    "loss": 1 / (number + 1),
                    "loss_mean": 1 / (number + 1),
                }
            )
        last = others[-1] | {"local_step": windows * window_steps}
        rewrite(run, worker, [others[0], *told, *others[1:-1], last])


@pytest.mark.parametrize(
    ("nth", "windows", "said"),
    [
        (10, 100, "its records tell 400 of 1991 steps: not every step was recorded."),
        (3, 100, "its records tell 400 of 598 steps"),
        (2, 100, "worker0 tells exactly one of 2 global steps"),
        (2, 2, "worker0 tells exactly one of 2 global steps"),
    ],
)
def test_workers_that_train_alone_and_tell_only_some_steps_are_not_proven(
    recorded: Path, nth: int, windows: int, said: str
) -> None:
    tell_every(recorded, nth, windows)
    verdict = verdict_of(recorded)
    assert verdict.verdict == "completed", verdict.failing
    assert "steps_interleave" not in checks(verdict, True, False, None)
    assert f"the workers trained one model together: {said}" in "\n".join(verdict.not_shown)


def again(every: list[Record]) -> list[Record]:
    """The records as those of a later process."""
    return [record | {"pid": 99999, "monotonic": record["monotonic"] + 1e6} for record in every]


def test_a_program_that_began_anew_is_not_proven_by_what_it_had_reached_before(recorded: Path) -> None:
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
    assert "Not shown is that the model holds all that worker0 trained: its global step fell from" in (
        "\n".join(verdict.not_shown)
    )


def test_metrics_of_one_global_step_are_taken_together_and_the_later_counts(recorded: Path) -> None:
    (evaluated,), others = steps_and_others(recorded, "worker1", "evaluated")
    told = [
        evaluated | {"global_step": 10_000, "metrics": metrics}
        for metrics in ({"weight": 0.0, "speed": 5.0}, {"weight": 2.0})
    ]
    rewrite(recorded, "worker1", [*others[:-1], *told, others[-1]])
    asked = {"weight": {"minimum": 1.8}, "speed": {"minimum": 5}}
    assert "goals_reached" in checks(verdict_of(recorded, goals=asked), True)

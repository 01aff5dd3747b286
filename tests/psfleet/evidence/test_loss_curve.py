"""Whether a loss fell beyond its noise: few flat losses count as falling, and a small fall is found."""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from psfleet.evidence.convergence import loss_fell
from psfleet.evidence.loss_curve import Change, change_of, smoothed_loss, trend_of
from psfleet.evidence.reading import read_run
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.task_records import TaskRecords
from tests.psfleet.evidence.run_folders import rewrite, steps_and_others
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask

Losses = Sequence[tuple[float, int]]  # the mean loss of a window, and its steps
Draw = Callable[[random.Random], float]
RUNS = 100


def run_of(losses: Losses, program: dict[str, object] | None = None) -> Run:
    """A run of one worker with these windows, which went well to its end."""
    records, done = [record("started", nonce=1, settings={})], 0
    for loss, steps in losses:
        windows = {"global_step_before": done, "global_step_after": done + steps, "local_step": done + steps}
        told = {"loss": loss, "loss_mean": loss, "steps": steps, "examples": steps}
        records.append(record("step", **windows, **told))
        done += steps
    records.append(record("finished", reason="last step", local_step=done, global_step=done))
    tasks = {"worker0": TaskRecords("worker0", tuple(records))}
    return Run(Path(), "run", program=program, expected=(RunTask("worker", 0, "host"),), tasks=tasks)


def record(event: str, **fields: object) -> Record:
    return Record(event, "run", "worker", 0, "host", 1, "", "", 0.0, 0.0, fields)


def changes(make: Callable[[random.Random], Losses]) -> list[Change]:
    return [change_of(run_of(make(random.Random(seed)))) for seed in range(RUNS)]


def with_memory(chance: random.Random, windows: int, memory: float) -> Losses:
    """Return losses around 1 with this autocorrelation from window to window."""
    left, losses = 0.0, []
    for _ in range(windows):
        left = memory * left + chance.gauss(0, 0.1 * math.sqrt(1 - memory**2))
        losses.append((1 + left, 1))
    return losses


def of_growing_windows(chance: random.Random, windows: int, draw: Draw) -> Losses:
    """The first windows are of a step, the last of fifty: the first are noisier."""
    steps = [1 + 49 * number // windows for number in range(windows)]
    return [(sum(draw(chance) for _ in range(count)) / count, count) for count in steps]


FLAT: dict[str, Callable[[random.Random], Losses]] = {
    "noise": lambda chance: with_memory(chance, 300, 0),
    "noise that remembers": lambda chance: with_memory(chance, 300, 0.9),
    "noise in few windows": lambda chance: with_memory(chance, 20, 0),
    "windows that grow": lambda chance: of_growing_windows(chance, 200, lambda of: of.gauss(1, 0.5)),
    "losses of an example": lambda chance: of_growing_windows(chance, 99, lambda of: of.gauss(0, 1) ** 2),
}


@pytest.mark.parametrize("flat", FLAT.values(), ids=list(FLAT))
def test_a_flat_loss_seldom_counts_as_fallen_or_risen(
    flat: Callable[[random.Random], Losses],
) -> None:
    """Two in a hundred at most; the level is two in a thousand, but correlated noise has fewer parts."""
    found = changes(flat)
    assert sum(change.fell for change in found) <= 2
    assert sum(change.rose for change in found) <= 2


def of_a_recommender(done: float) -> float:
    """A log loss that falls by less than a fifth, all the time."""
    return 0.685 - 0.132 * done


def at_rest(done: float) -> float:
    """The same fall, over before most windows are written."""
    return 0.553 + 0.132 * math.exp(-40 * done)


@pytest.mark.parametrize("shape", [of_a_recommender, at_rest])
@pytest.mark.parametrize("windows", [20, 200])
def test_a_small_fall_is_found_through_its_noise(shape: Callable[[float], float], windows: int) -> None:
    def fall(chance: random.Random) -> Losses:
        return [(shape(number / windows) + chance.gauss(0, 0.01), 5) for number in range(windows)]

    found = changes(fall)
    assert sum(change.fell for change in found) >= RUNS - 2
    rising = changes(lambda chance: list(reversed(fall(chance))))
    assert not any(change.fell for change in rising)


def answer(
    losses: Losses, program: dict[str, object] | None = None, **settings: object
) -> tuple[bool | None, str]:
    found = loss_fell(run_of(losses, program), EvidenceSettings.from_mapping(settings))
    return found.ok, found.detail


FELL = [(of_a_recommender(number / 100), 1) for number in range(100)]
STILL = [(1.0 + 0.01 * (number % 3), 1) for number in range(100)]


def test_a_minimum_reduction_of_the_loss_counts_only_if_it_is_set() -> None:
    assert answer(FELL) == (True, "from 0.6797 to 0.5603, beyond its noise")
    ok, told = answer(FELL, minimum_loss_reduction=0.2)
    assert (ok, "expected a fall by 20%; training_evidence_minimum" in told) == (False, True)
    assert answer(FELL, minimum_loss_reduction=0.1)[0]
    assert answer(FELL, minimum_loss_reduction=0.2, target_loss=0.57)[0]
    assert answer(FELL, target_loss=0.5)[0] is False


def test_a_flat_loss_contradicts_a_built_in_model_and_leaves_a_program_open() -> None:
    program: dict[str, object] = {"release": "x"}
    said = "so it did not fall beyond its noise"
    for of, ok in ((None, False), (program, None)):
        found, told = answer(STILL, of)
        assert (found, said in told) == (ok, True)
    assert answer(STILL, program, minimum_loss_reduction=0.2)[0] is False
    ok, told = answer(FELL[::-1], program)
    assert (ok, "the loss rose from" in told) == (False, True)


def test_too_few_windows_leave_the_fall_open() -> None:
    assert answer(STILL[:5]) == (
        None,
        "the loss went from 1 to 1.01, so it did not fall beyond its noise, and 5 windows are too few to "
        "tell",
    )


def test_rounding_errors_of_a_fitted_model_are_no_rise() -> None:
    losses = [(step, 1e-18 * math.exp(step / 100)) for step in range(300)]
    assert trend_of(losses, None).rises
    assert not trend_of(losses, 0.01).rises
    assert not trend_of([(0, 1.0), *losses], None).rises
    assert not trend_of([(step, 0.0) for step in range(300)], None).rises


def test_two_windows_are_enough_to_compare(run: Path) -> None:
    for task, loss, after in (("worker0", 5.0, 1), ("worker1", 1.0, 2)):
        (step, *_), _ = steps_and_others(run, task)
        rewrite(run, task, [step | {"loss_mean": loss, "global_step_after": after}])
    assert smoothed_loss(read_run(run)) == (5.0, 1.0)


def test_a_small_rise_is_accepted_even_without_noise() -> None:
    def trend(rise: float) -> bool:
        return trend_of([(step, 1 + rise * step / 300) for step in range(300)], None).rises

    assert not trend(0.2)  # less than a tenth in the last third
    assert trend(0.6)


def test_noise_alone_seldom_counts_as_a_rise() -> None:
    """At most ten of a thousand flat losses count as rising."""
    random_number = random.Random(1)
    taken = 0
    for _ in range(1000):
        losses = [(step, math.exp(random_number.gauss(0, 0.5))) for step in range(200)]
        taken += trend_of(losses, None).rises
    assert taken <= 10

"""The loss at the end of a run: noise is accepted; a plateau above the target or a rise is not."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.convergence import loss_settled
from psfleet.evidence.loss_curve import smoothed_loss, trend_of
from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from tests.psfleet.evidence.folder_damages import train_another_model
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
)

Shape = Callable[[float], float]  # part of the run that is done -> loss


def shape_losses(run: Path, shape: Shape, noise: float = 0.0) -> None:
    """Give each window the loss that the part of the run has by then, times lognormal noise."""
    random_number = random.Random(3)
    last = records(run, "worker0")[-1]["global_step"]
    for task in ("worker0", "worker1"):
        changed = records(run, task)
        for record in changed:
            if record["event"] == "step":
                loss = shape(record["global_step_after"] / last)
                loss *= math.exp(random_number.gauss(0, noise))
                record |= {"loss": loss, "loss_mean": loss}
        rewrite(run, task, changed)


def falling(done: float) -> float:
    return 0.1 + 50 * math.exp(-30 * done)


def plateau(done: float) -> float:
    return falling(done) + 0.2


def rising(done: float) -> float:
    return falling(done) * (1 if done < 2 / 3 else math.exp(done - 2 / 3))


def late(done: float) -> float:
    return 50.0 if done < 0.5 else 0.1


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.6])
def test_a_loss_that_fell_to_its_target_has_settled_whatever_its_noise(run: Path, noise: float) -> None:
    shape_losses(run, falling, noise)
    verdict = verdict_of(run)
    assert "loss_settled" in checks(verdict, True), detail(verdict, "loss_settled")


def test_a_few_outlying_windows_do_not_matter(run: Path) -> None:
    shape_losses(run, lambda done: 1000.0 if done * 100 % 10 > 9 else falling(done))
    assert "loss_settled" in checks(verdict_of(run), True)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_a_plateau_above_the_target_is_not_proven(run: Path, noise: float) -> None:
    shape_losses(run, plateau, noise)
    verdict = verdict_of(run)
    assert (checks(verdict, False), verdict.exit_code) == ({"loss_settled"}, 1)
    assert "expected at most 0.2 throughout" in detail(verdict, "loss_settled")
    assert verdict_of(run, target_loss=0.6).exit_code == 0


def test_the_loss_must_stay_below_its_target_for_the_patience(run: Path) -> None:
    shape_losses(run, late)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0.8), False)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0.1), True)
    shape_losses(run, lambda done: 0.1 if done == 1 else 50.0)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0), True)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_rising_loss_is_found_also_below_its_target(run: Path, noise: float) -> None:
    shape_losses(run, rising, noise)
    verdict = verdict_of(run)
    assert checks(verdict, False) == {"loss_settled"}
    assert "the loss rises: 1." in detail(verdict, "loss_settled")


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


def test_a_loss_without_a_target_must_only_not_rise(run: Path) -> None:
    train_another_model(run, "my_model")
    shape_losses(run, plateau, 0.1)
    assert "loss_settled" in checks(verdict_of(run), True)


def test_missing_records_leave_the_question_open(run: Path) -> None:
    shape_losses(run, plateau)
    rewrite(run, "worker1", records(run, "worker1")[:-1])
    assert "loss_settled" in checks(verdict_of(run), None)
    drop(run, "worker0 worker1", "step")
    found = loss_settled(read_run(run), EvidenceSettings())
    assert (found.ok, found.detail) == (None, "there are too few finite losses to judge")

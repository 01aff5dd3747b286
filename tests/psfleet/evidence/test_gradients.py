"""Gradient tests of two workers: one of them pushed noise."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from psfleet.evidence.gradients import gradients_fit_loss

LOOKS = 4


def run_of(*, norm: float = 1.0, **looks: list[tuple[float, float]]) -> Any:  # noqa: ANN401 - of a run no more than is looked at
    """Return a run whose workers recorded these losses and fits."""

    def worker(name: str, found: list[tuple[float, float]]) -> SimpleNamespace:
        records = [
            SimpleNamespace(fields={"losses": {name: loss}, "norms": {name: norm}, "fits": {name: fit}})
            for loss, fit in found
        ]
        return SimpleNamespace(name=name, of=lambda _event: records)

    workers = [worker(name, found) for name, found in looks.items()]
    return SimpleNamespace(recorded_workers=workers, rules=SimpleNamespace(one_client=False))


@pytest.mark.parametrize(
    "honest",
    [
        [(2.0, 1.0)] * LOOKS,
        pytest.param([(None, 1.0), *[(2.0, 1.0)] * (LOOKS - 1)], id="a loss of the other was no number"),
        pytest.param([(1e30, 1.0), *[(2.0, 1.0)] * (LOOKS - 1)], id="one began beyond all bounds"),
        pytest.param([*[(2.0, 1.0)] * (LOOKS - 1), (1e30, 1.0)], id="one ended beyond all bounds"),
        pytest.param([(math.inf, 1.0), *[(2.0, 1.0)] * (LOOKS - 1)], id="one was no finite one"),
    ],
)
@pytest.mark.parametrize("loss", [2.0, pytest.param(-2.0, id="below 0, as a likelihood may be")])
def test_gradients_of_noise_are_found_whatever_the_losses(
    honest: list[tuple[float, float]], loss: float
) -> None:
    answer = gradients_fit_loss(run_of(worker0=honest, worker1=[(loss, 0.02)] * LOOKS))
    assert answer.ok is False
    assert answer.detail.startswith("what worker1 pushed are not the gradients of its loss")


def test_one_of_three_gradient_tests_may_be_at_a_kink_and_two_may_not() -> None:
    assert gradients_fit_loss(run_of(worker0=[(2.0, 1.0), (2.0, 0.4), (2.0, 1.0)])).ok
    assert gradients_fit_loss(run_of(worker0=[(2.0, 1.0), (2.0, 0.4), (2.0, 0.4)])).ok is False


def test_zero_gradients_are_accepted_only_at_a_loss_of_zero() -> None:
    assert gradients_fit_loss(run_of(norm=0.0, worker0=[(0.0, 0.0)] * LOOKS)).ok
    assert gradients_fit_loss(run_of(norm=0.0, worker0=[(2.0, 0.0)] * LOOKS)).ok is False

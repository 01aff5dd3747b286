import math
import random

import pytest

from psfleet.watch.pace import LOSSES_KEPT, READINGS_KEPT, RunHistory
from tests.psfleet.watch.played_runs import progress


def history(*rates: float, seconds: int = 12, last_step: int = 400) -> RunHistory:
    seen = RunHistory()
    for second in range(seconds + 1):
        counts = [int(rate * second) for rate in rates]
        seen.add(
            progress(wall=100.0 + second, global_step=sum(counts), contributions=counts, last_step=last_step)
        )
    return seen


def test_each_worker_has_a_rate_and_the_time_left_follows_the_global_steps() -> None:
    pace = history(20, 10).pace()
    assert pace.rates == pytest.approx((20, 10))
    assert pace.steps_per_second == pytest.approx(30)
    assert pace.seconds_left == pytest.approx(40 / 30)
    assert pace.comparable


@pytest.mark.parametrize("contributions", [[100, 100, 0], [50, 50, 50]])
def test_the_time_left_follows_the_global_steps_whatever_the_contributions(contributions: list[int]) -> None:
    seen = RunHistory()
    seen.add(progress(wall=10.0, global_step=100, contributions=[0, 0, 0]))
    seen.add(progress(wall=20.0, global_step=200, contributions=contributions))
    assert seen.pace().seconds_left == pytest.approx(20)


def test_the_time_left_is_unknown_during_the_first_steps() -> None:
    assert history(0.5, seconds=12, last_step=100_000).pace().seconds_left is None, "six steps"
    assert history(500, seconds=9, last_step=100_000).pace().seconds_left is None, "nine seconds"
    assert history(500, seconds=10, last_step=100_000).pace().seconds_left == pytest.approx(190)


def test_the_rate_of_a_stopped_worker_falls_to_zero_within_seconds() -> None:
    seen = history(50, 50, seconds=100)
    for second in range(1, 7):
        counts = [5000 + 50 * second, 5000]
        seen.add(progress(wall=200.0 + second, global_step=sum(counts), contributions=counts))
    assert seen.pace().rates == pytest.approx((50, 0), abs=1)


def test_slow_steps_are_compared_over_a_longer_time() -> None:
    # A step in ten seconds: five seconds would show none of some workers and one of others.
    assert not history(0.1, 0.1, seconds=50).pace().comparable
    pace = history(0.1, 0.1, seconds=200).pace()
    assert pace.comparable
    assert pace.rates == pytest.approx((0.1, 0.1), rel=0.1)


def test_a_reading_seen_twice_keeps_the_rates() -> None:
    seen = history(20, 10)
    before = seen.pace()
    assert not seen.add(progress(wall=112.0, global_step=400, contributions=[9, 9]))
    assert seen.pace() == before


def test_steps_of_a_restored_checkpoint_do_not_count_in_the_rate() -> None:
    seen = RunHistory()
    seen.add(progress(phase="waiting", wall=1.0, contributions=[0, 0]))
    seen.add(progress(wall=2.0, global_step=10000, contributions=[5000, 5000]))
    assert seen.pace().rates == ()


def test_rates_are_measured_anew_after_the_global_step_went_back() -> None:
    seen = history(20, 10)
    seen.add(progress(wall=120.0, global_step=100, contributions=[60, 40]))
    assert seen.pace().rates == ()
    seen.add(progress(wall=122.0, global_step=120, contributions=[70, 50]))
    assert seen.pace().rates == (5, 5)


def test_the_memory_of_a_long_run_is_bounded() -> None:
    seen = RunHistory()
    for second in range(5 * READINGS_KEPT):
        seen.add(progress(wall=float(second + 1), global_step=second, loss=1 / (second + 1)))
    assert len(seen._readings) == READINGS_KEPT
    assert len(seen._losses) <= LOSSES_KEPT
    assert seen.curve(5)[0] > seen.curve(5)[-1]


@pytest.mark.parametrize(("factor", "trend"), [(0.97, "falling"), (1.03, "rising"), (1.0, "level")])
def test_the_trend_of_the_loss_is_found_despite_its_noise(factor: float, trend: str) -> None:
    noise = random.Random(7)
    seen = RunHistory()
    for second in range(40):
        loss = math.pow(factor, second) * noise.uniform(0.8, 1.2)
        seen.add(progress(wall=float(second + 1), global_step=second, loss=loss))
    assert seen.trend() == trend


def test_a_few_losses_have_no_trend() -> None:
    seen = RunHistory()
    for second in range(4):
        seen.add(progress(wall=float(second + 1), global_step=second, loss=1.0 - second / 10))
    assert seen.trend() == ""

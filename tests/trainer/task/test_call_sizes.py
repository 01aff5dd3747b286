"""A call has as many steps as fit into 50 ms; the first call has one."""

import pytest

from trainer.task.call_sizes import CallSizes


def _sizes(sizes: CallSizes, milliseconds_of_a_step: float, calls: int) -> list[int]:
    taken = []
    for _ in range(calls):
        taken.append(sizes.next_size(1000))
        sizes.adapt(milliseconds_of_a_step / 1000 * taken[-1], taken[-1])
    return taken


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0.0, [1, 2, 4, 8, 10, 10]), (4.9, [1, 2, 4, 8, 10, 10]), (12, [1, 2, 4, 4]), (51, [1, 1, 1])],
)
def test_sizes_grow_up_to_the_steps_that_fit_into_50_ms(milliseconds: float, expected: list[int]) -> None:
    assert _sizes(CallSizes(10), milliseconds, len(expected)) == expected


def test_calls_that_pull_ahead_may_take_half_a_second() -> None:
    assert _sizes(CallSizes(10, pull_ahead=True), 51, 5) == [1, 2, 4, 8, 9]
    assert _sizes(CallSizes(10, pull_ahead=True), 501, 2) == [1, 1]


def test_a_call_has_the_steps_of_a_pull_however_long_they_take() -> None:
    assert _sizes(CallSizes(24, 6), 51, 5) == [1, 2, 4, 6, 6]
    assert _sizes(CallSizes(24, 6), 1, 6) == [1, 2, 4, 8, 16, 24]
    sizes = CallSizes(24, 6)
    for taken, following in ((6, 6), (1, 2), (2, 4)):  # something was due after a step: no call is sudden
        sizes.adapt(taken, taken)
        assert sizes.next_size(1000) == following


def test_sizes_shrink_at_once_and_grow_again() -> None:
    sizes = CallSizes(10)
    _sizes(sizes, 1, 5)
    assert _sizes(sizes, 20, 2) == [10, 2]
    assert _sizes(sizes, 1, 4) == [2, 4, 8, 10]


@pytest.mark.parametrize(("steps", "expected"), [(100, 10), (7, 7), (1, 1), (0, 1), (-3, 1)])
def test_no_call_has_more_steps_than_remain_until_the_next_duty(steps: int, expected: int) -> None:
    sizes = CallSizes(10)
    _sizes(sizes, 1, 5)
    assert sizes.next_size(steps) == expected


def test_sizes_stay_at_one_if_the_setting_is_one() -> None:
    assert _sizes(CallSizes(1), 0.1, 3) == [1, 1, 1]

"""How many steps a call has: as many as fit into 50 ms, after a start with one."""

import pytest

from trainer.task.call_sizes import CallSizes


def _sizes(sizes: CallSizes, milliseconds_of_a_step: float, calls: int) -> list[int]:
    taken = []
    for _ in range(calls):
        taken.append(sizes.within(1000))
        sizes.adapt(milliseconds_of_a_step / 1000 * taken[-1], taken[-1])
    return taken


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0.0, [1, 2, 4, 8, 10, 10]), (4.9, [1, 2, 4, 8, 10, 10]), (12, [1, 2, 4, 4]), (51, [1, 1, 1])],
)
def test_sizes_grow_to_what_fits(milliseconds: float, expected: list[int]) -> None:
    assert _sizes(CallSizes(10), milliseconds, len(expected)) == expected


def test_steps_that_pull_ahead_have_half_a_second() -> None:
    assert _sizes(CallSizes(10, pull_ahead=True), 51, 5) == [1, 2, 4, 8, 9]
    assert _sizes(CallSizes(10, pull_ahead=True), 501, 2) == [1, 1]


def test_they_fall_at_once_and_come_back() -> None:
    sizes = CallSizes(10)
    _sizes(sizes, 1, 5)
    assert _sizes(sizes, 20, 2) == [10, 2]
    assert _sizes(sizes, 1, 4) == [2, 4, 8, 10]


@pytest.mark.parametrize(("steps", "expected"), [(100, 10), (7, 7), (1, 1), (0, 1), (-3, 1)])
def test_no_call_goes_beyond_what_is_due(steps: int, expected: int) -> None:
    sizes = CallSizes(10)
    _sizes(sizes, 1, 5)
    assert sizes.within(steps) == expected


def test_one_is_the_most_where_that_is_asked_for() -> None:
    assert _sizes(CallSizes(1), 0.1, 3) == [1, 1, 1]

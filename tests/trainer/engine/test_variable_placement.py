"""The placement of variables on ps: equal shares for any sizes, and each number once."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trainer.engine.variable_placement import WHOLE_BELOW, Piece, ToPlace, place

# The same sizes every time, so that nothing depends on chance.
CHOSEN = settings(derandomize=True, max_examples=500, deadline=None, database=None)
# From so many bytes for each ps on they are balanced.
BALANCED_FROM = 20 << 10
NUMBERS = some.one_of([some.integers(0, most) for most in (200, 5_000, 20_000, 100_000_000)])
FREE = some.builds(ToPlace, NUMBERS, some.sampled_from([2, 4, 8]), some.none(), some.just(False))
ALIKE = some.builds(ToPlace, some.integers(500, 5_000), some.just(4), some.none(), some.just(False))


def _held(variables: list[ToPlace], places: list[list[Piece]], ps: int) -> list[int]:
    held = Counter(dict.fromkeys(range(ps), 0))
    for its, pieces in zip(variables, places, strict=True):
        for piece in pieces or [Piece(its.ps or 0, 0, its.numbers)]:
            held[piece.ps] += (piece.stop - piece.start) * its.width
    return [held[index] for index in range(ps)]


@CHOSEN
@given(some.lists(FREE) | some.lists(ALIKE, min_size=30), some.integers(1, 16))
def test_each_number_is_placed_once_and_no_ps_holds_much_more_than_the_mean(
    variables: list[ToPlace], ps: int
) -> None:
    places = place(variables, ps)
    for its, pieces in zip(variables, places, strict=True):
        # All of it, in order, each piece on a ps of its own.
        assert [piece.start for piece in pieces] == [0, *(piece.stop for piece in pieces[:-1])]
        assert pieces[-1].stop == its.numbers
        assert [piece.ps for piece in pieces] == sorted({piece.ps for piece in pieces})
        assert all(piece.start % 16 == 0 for piece in pieces)
        assert len(pieces) == 1 or all(piece.start < piece.stop for piece in pieces)
        assert len(pieces) == 1 or its.bytes > 1000
    assert sum(len(pieces) - 1 for pieces in places) < ps
    held = _held(variables, places, ps)
    mean = sum(held) / ps
    if mean >= BALANCED_FROM:
        assert max(held) <= 1.05 * mean
    elif mean < WHOLE_BELOW:
        assert all(len(pieces) == 1 for pieces in places)
    if sum(its.bytes > 0 for its in variables) >= ps:
        assert min(held) > 0


@CHOSEN
@given(
    some.lists(
        some.builds(ToPlace, NUMBERS, some.just(4), some.none() | some.integers(0, 3), some.booleans())
    )
)
def test_placed_and_whole_variables_are_kept_and_the_rest_balance_the_ps(variables: list[ToPlace]) -> None:
    places = place(variables, 4)
    for its, pieces in zip(variables, places, strict=True):
        if its.ps is not None:
            assert pieces == []
        elif its.whole:
            assert [(piece.start, piece.stop) for piece in pieces] == [(0, its.numbers)]
    held = _held(variables, places, 4)
    free = [its.bytes for its in variables if its.ps is None and not its.whole]
    if sum(free) >= 4 * BALANCED_FROM:
        # Who holds more than the others has none of what could lie elsewhere.
        full = {ps for ps in range(4) if held[ps] > min(held) + 0.05 * sum(free) / 4}
        for its, pieces in zip(variables, places, strict=True):
            assert its.ps is not None or its.whole or not full & {piece.ps for piece in pieces if its.numbers}


@pytest.mark.parametrize(
    ("sizes", "ps", "expected"),
    [
        ([1, 1], 2, [[(0, 0, 1)], [(1, 0, 1)]]),
        ([1, 1], 3, [[(0, 0, 1)], [(1, 0, 1)]]),
        ([8, 600, 8, 8], 2, [[(1, 0, 8)], [(0, 0, 600)], [(1, 0, 8)], [(1, 0, 8)]]),
        ([6400, 100, 1000, 10], 1, [[(0, 0, 6400)], [(0, 0, 100)], [(0, 0, 1000)], [(0, 0, 10)]]),
        (
            [6400, 100, 1000, 10],
            2,
            [[(0, 0, 3760), (1, 3760, 6400)], *([(1, 0, n)] for n in (100, 1000, 10))],
        ),
        ([1500, 1600], 2, [[(0, 0, 1500)], [(1, 0, 1600)]]),
        ([30_000], 3, [[(0, 0, 10_000), (1, 10_000, 20_000), (2, 20_000, 30_000)]]),
    ],
)
def test_small_variables_stay_whole_and_large_ones_are_cut(
    sizes: list[int], ps: int, expected: list[list[tuple[int, ...]]]
) -> None:
    assert place([ToPlace(size, 4) for size in sizes], ps) == expected

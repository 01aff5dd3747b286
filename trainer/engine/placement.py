"""The placement of a model's variables on the ps, so that each ps holds about as many bytes.

The variables are laid end to end, in the model's order, and each ps takes the next part of that row. So
there is at most one cut fewer than there are ps.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

# If each ps would hold fewer bytes than this, no variable is cut.
WHOLE_BELOW = 4096
# No cut is nearer than this to a variable's end: in bytes, and as a part of the bytes of a ps.
_NEAR, _NEAR_PART = 512, 0.02
# A piece begins at a multiple of so many numbers: TensorFlow reads such a slice without copying it.
_GRAIN = 16


class ToPlace(NamedTuple):
    """A variable to be placed: how many numbers it has, and how many bytes wide each is.

    `ps` is the index of the ps on which the model itself placed the variable, if it did. A variable that is
    `whole` must not be cut.
    """

    numbers: int
    width: int
    ps: int | None = None
    whole: bool = False

    @property
    def bytes(self) -> int:
        """The size of the variable in bytes."""
        return self.numbers * self.width


class Piece(NamedTuple):
    """The numbers of a variable from `start` up to `stop` (exclusive), which this ps holds."""

    ps: int
    start: int
    stop: int


def place(variables: Sequence[ToPlace], ps: int) -> list[list[Piece]]:
    """Return the pieces of each variable, in order.

    A variable that is not cut has one piece. A variable that the model placed itself has none.
    """
    held = [0] * ps
    placed: list[list[Piece]] = [[] for _ in variables]
    free = sum(its.bytes for its in variables if its.ps is None and not its.whole)
    cut: list[int] = []
    # First the variables that the model placed, then whole ones, the largest first, on the emptiest ps.
    for number, its in sorted(enumerate(variables), key=lambda item: (item[1].ps is None, -item[1].bytes)):
        if its.ps is None and its.numbers and not its.whole and free >= ps * WHOLE_BELOW:
            cut.append(number)
            continue
        holder = held.index(min(held)) if its.ps is None else its.ps
        held[holder] += its.bytes
        placed[number] = [Piece(holder, 0, its.numbers)] if its.ps is None else []
    cut.sort()
    for number, pieces in zip(cut, _cut([variables[number] for number in cut], held), strict=True):
        placed[number] = pieces
    return placed


def _cut(row: Sequence[ToPlace], held: Sequence[int]) -> list[list[Piece]]:
    """Return the pieces of a row of variables; `held` has the bytes that each ps holds already."""
    ends = [0, *accumulate(its.bytes for its in row)]
    near = max(_NEAR, _NEAR_PART * ends[-1] / len(held))
    shares = [0, *accumulate(_room(ends[-1], held))]
    limits = [0, *(_limit(limit, row, ends, near) for limit in shares[1:-1]), ends[-1]]
    return [
        [
            Piece(ps, (max(first, begin) - begin) // its.width, (min(last, end) - begin) // its.width)
            for ps, (first, last) in enumerate(pairwise(limits))
            if max(first, begin) < min(last, end)
        ]
        for its, (begin, end) in zip(row, pairwise(ends), strict=True)
    ]


def _limit(limit: float, row: Sequence[ToPlace], ends: Sequence[int], near: float) -> int:
    """Return where one ps ends and the next begins, close to `limit`: between two variables, or in one."""
    closest = min(ends, key=lambda end: abs(end - limit))
    if abs(closest - limit) <= near:
        return closest
    number = bisect(ends, limit) - 1
    grain = _GRAIN * row[number].width
    return ends[number] + round((limit - ends[number]) / grain) * grain


def _room(total: float, held: Sequence[int]) -> list[float]:
    """Return how many of `total` bytes each ps takes, so that all ps that take any end up equally full."""
    least = sorted(held)
    level = min((total + sum(least[:count])) / count for count in range(1, len(held) + 1))
    return [max(0.0, level - bytes_) for bytes_ in held]

"""Which ps holds what of a model's variables: as many bytes as the others, whatever their sizes.

The variables are laid end to end, in the model's order, and each ps takes the next part of that row: so of
all variables at most one less than there are ps is cut, or one of them so many times.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

# Where each ps would have fewer bytes, all variables stay whole.
WHOLE_BELOW = 4096
# No cut is nearer than this to a variable's end: in bytes, and as a part of what a ps holds.
_NEAR, _NEAR_PART = 512, 0.02
# In numbers: parts of a tensor that begin there are read without being copied.
_GRAIN = 16


class Asked(NamedTuple):
    """A variable to be placed: so many numbers of so many bytes.

    `ps` is the one on which the model itself has placed it. One that is `whole` is not cut.
    """

    numbers: int
    width: int
    ps: int | None = None
    whole: bool = False

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.numbers * self.width


class Piece(NamedTuple):
    """The numbers of a variable from `start` up to `stop`, for this ps."""

    ps: int
    start: int
    stop: int


def place(variables: Sequence[Asked], ps: int) -> list[list[Piece]]:
    """The pieces of each variable, in order: one of what is not cut, none of what has its ps already."""
    held = [0] * ps
    found: list[list[Piece]] = [[] for _ in variables]
    free = sum(its.bytes for its in variables if its.ps is None and not its.whole)
    cut: list[int] = []
    # First what has its place, then what stays whole, the largest first: it goes where least is.
    for number, its in sorted(enumerate(variables), key=lambda item: (item[1].ps is None, -item[1].bytes)):
        if its.ps is None and its.numbers and not its.whole and free >= ps * WHOLE_BELOW:
            cut.append(number)
            continue
        holder = held.index(min(held)) if its.ps is None else its.ps
        held[holder] += its.bytes
        found[number] = [Piece(holder, 0, its.numbers)] if its.ps is None else []
    cut.sort()
    for number, pieces in zip(cut, _cut([variables[number] for number in cut], held), strict=True):
        found[number] = pieces
    return found


def _cut(row: Sequence[Asked], held: Sequence[int]) -> list[list[Piece]]:
    """The pieces of these, where each ps holds so many bytes already."""
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


def _limit(limit: float, row: Sequence[Asked], ends: Sequence[int], near: float) -> int:
    """Where one ps ends and the next begins, close to `limit`: between two variables, or in one."""
    closest = min(ends, key=lambda end: abs(end - limit))
    if abs(closest - limit) <= near:
        return closest
    number = bisect(ends, limit) - 1
    grain = _GRAIN * row[number].width
    return ends[number] + round((limit - ends[number]) / grain) * grain


def _room(total: float, held: Sequence[int]) -> list[float]:
    """How many bytes of `total` each ps takes, so that all that take some end with as many."""
    least = sorted(held)
    level = min((total + sum(least[:count])) / count for count in range(1, len(held) + 1))
    return [max(0.0, level - bytes_) for bytes_ in held]

"""The placement of a model's variables on the ps, so that all ps hold about the same number of bytes.

The variables are laid end to end, in the model's order, and each ps takes the next section of this row. So
with `n` ps there are at most `n - 1` cuts.
"""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

# No variable is cut if each ps would hold fewer bytes than this.
WHOLE_BELOW = 4096
# No cut is nearer than this to the end of a variable: in bytes, and as a share of the bytes of a ps. The
# larger of both counts.
_NEAR, _NEAR_PART = 512, 0.02
# A piece begins at a multiple of this many numbers, because TensorFlow then reads the slice without a copy.
_GRAIN = 16


class ToPlace(NamedTuple):
    """A variable to be placed: `numbers` is how many numbers it has, `width` the bytes of one number.

    `ps` is the index of the ps on which the model itself placed the variable; None if the model did not place
    it. If `whole` is True, the variable must not be cut.
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
    """The numbers of a variable from index `start` to `stop` (exclusive), which ps number `ps` holds."""

    ps: int
    start: int
    stop: int


def place(variables: Sequence[ToPlace], ps_count: int) -> list[list[Piece]]:
    """Return, for each variable in the same order, its pieces on `ps_count` ps, from its first number on.

    A variable that is not cut has one piece. A variable that the model placed itself has [].
    """
    sizes = [0] * ps_count
    placed: list[list[Piece]] = [[] for _ in variables]
    free = sum(variable.bytes for variable in variables if variable.ps is None and not variable.whole)
    cut: list[int] = []
    # First the variables that the model placed; then whole variables, the largest first, on the emptiest
    # ps.
    in_turn = sorted(enumerate(variables), key=lambda item: (item[1].ps is None, -item[1].bytes))
    for number, own in in_turn:
        if own.ps is None and own.numbers and not own.whole and free >= ps_count * WHOLE_BELOW:
            cut.append(number)
            continue
        holder = sizes.index(min(sizes)) if own.ps is None else own.ps
        sizes[holder] += own.bytes
        placed[number] = [Piece(holder, 0, own.numbers)] if own.ps is None else []
    cut.sort()
    for number, pieces in zip(cut, _cut([variables[number] for number in cut], sizes), strict=True):
        placed[number] = pieces
    return placed


def _cut(row: Sequence[ToPlace], sizes: Sequence[int]) -> list[list[Piece]]:
    """Return, for each variable of a row, its pieces; `sizes` are the bytes that each ps holds already.

    The ps take consecutive sections of the row; a variable in several sections is cut.
    """
    ends = [0, *accumulate(variable.bytes for variable in row)]
    near = max(_NEAR, _NEAR_PART * ends[-1] / len(sizes))
    shares = [0, *accumulate(_room(ends[-1], sizes))]
    limits = [0, *(_limit(limit, row, ends, near) for limit in shares[1:-1]), ends[-1]]
    return [
        [
            Piece(ps, (max(first, begin) - begin) // own.width, (min(last, end) - begin) // own.width)
            for ps, (first, last) in enumerate(pairwise(limits))
            if max(first, begin) < min(last, end)
        ]
        for own, (begin, end) in zip(row, pairwise(ends), strict=True)
    ]


def _limit(limit: float, row: Sequence[ToPlace], ends: Sequence[int], near: float) -> int:
    """Return the byte of the row at which one ps ends and the next begins, close to `limit`.

    This is the end of a variable if one is at most `near` bytes away, else a place inside a variable. `ends`
    are the places in the row, in bytes, where variables end, with 0 first.
    """
    closest = min(ends, key=lambda end: abs(end - limit))
    if abs(closest - limit) <= near:
        return closest
    number = bisect(ends, limit) - 1
    grain = _GRAIN * row[number].width
    return ends[number] + round((limit - ends[number]) / grain) * grain


def _room(total: float, sizes: Sequence[int]) -> list[float]:
    """Return how many of `total` bytes each ps takes, so that the emptiest ps become equally full.

    `sizes` are the bytes that each ps holds already; a ps that is fuller takes 0.

    Example: _room(10, [0, 4, 20]) -> [7, 3, 0]
    """
    least = sorted(sizes)
    level = min((total + sum(least[:count])) / count for count in range(1, len(sizes) + 1))
    return [max(0.0, level - size) for size in sizes]

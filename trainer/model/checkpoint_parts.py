"""Cuts the values of a checkpoint into parts that travel one after the other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The largest part. The sender and the receiver need memory for one more copy of a part, and TensorFlow cannot
# send 2 GB at once.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Slice:
    """Some consecutive rows of a variable; a scalar counts as one row.

    Attributes:
        name: the variable's name.
        shape: the shape of the whole variable.
        begin: the index of the first row.
        rows: the number of rows.

    """

    name: str
    shape: tuple[int, ...]
    begin: int
    rows: int

    @property
    def is_whole(self) -> bool:
        """Whether the slice has all rows of the variable."""
        return not self.shape or self.rows == self.shape[0]

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The shape of the slice; () for a scalar.

        Example: 3 rows of a variable of shape [10, 5] -> (3, 5)
        """
        return (self.rows, *self.shape[1:]) if self.shape else ()

    @property
    def specification(self) -> str:
        """The slice in the syntax of TensorFlow's `SaveV2`; "" for a whole variable.

        Example: rows 2 to 4 of a variable of shape [10, 3] -> "10 3 2,3:-"
        """
        if self.is_whole:
            return ""
        sizes = " ".join(str(size) for size in self.shape)
        return f"{sizes} {':'.join([f'{self.begin},{self.rows}', *['-'] * (len(self.shape) - 1)])}"

    def of(self, value: Any) -> Any:  # noqa: ANN401 - of an array, or what is read like one
        """Return the slice's rows of `value`, the value of the whole variable; a scalar is returned as is."""
        return value[self.begin : self.begin + self.rows] if self.shape else value


def parts_of(
    variables: Mapping[str, tuple[tuple[int, ...], int]], most_bytes: int = MOST_BYTES
) -> list[list[Slice]]:
    """Cut variables into parts of at most `most_bytes` bytes; return the slices of each part.

    `variables` is {name: (shape, bytes of one number)}. The slices have the order of `variables` and of their
    rows; each row is in exactly one slice. A row with more than `most_bytes` bytes is a part of its own.
    """
    parts: list[list[Slice]] = []
    room = 0
    for name, (shape, element_bytes) in variables.items():
        rows = shape[0] if shape else 1
        row_bytes = element_bytes * math.prod(shape[1:])
        at_once = max(1, most_bytes // max(row_bytes, 1))
        for begin in range(0, max(rows, 1), at_once):
            piece = Slice(name, shape, begin, min(at_once, rows - begin))
            if not parts or piece.rows * row_bytes > room:
                parts.append([])
                room = most_bytes
            parts[-1].append(piece)
            room -= piece.rows * row_bytes
    return parts


def bytes_of(variables: Mapping[str, tuple[tuple[int, ...], int]]) -> int:
    """Return the bytes of all variables together; `variables` is {name: (shape, bytes of one number)}."""
    return sum(math.prod(shape) * element_bytes for shape, element_bytes in variables.values())

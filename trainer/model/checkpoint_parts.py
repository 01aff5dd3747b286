"""How the values of a checkpoint are cut into parts that travel one after the other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Whoever sends or receives a part has it in memory once more; TensorFlow cannot send 2 GB at once.
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Slice:
    """Some rows of a variable; a variable without dimensions has one, its value."""

    name: str
    shape: tuple[int, ...]
    begin: int
    rows: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the variable."""
        return not self.shape or self.rows == self.shape[0]

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The shape of these rows."""
        return (self.rows, *self.shape[1:]) if self.shape else ()

    @property
    def specification(self) -> str:
        """The slice as TensorFlow's `SaveV2` takes it; empty for a whole variable."""
        if self.is_whole:
            return ""
        sizes = " ".join(str(size) for size in self.shape)
        return f"{sizes} {':'.join([f'{self.begin},{self.rows}', *['-'] * (len(self.shape) - 1)])}"

    def of(self, value: Any) -> Any:  # noqa: ANN401 - of an array, or what is read like one
        """Return these rows of the variable's value."""
        return value[self.begin : self.begin + self.rows] if self.shape else value


def parts_of(
    variables: Mapping[str, tuple[tuple[int, ...], int]], most_bytes: int = MOST_BYTES
) -> list[list[Slice]]:
    """Return the slices of each part; `variables` maps names to shapes and the bytes of an element.

    A part has at most so many bytes, unless a single row is larger.
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
    """Return the bytes of all values."""
    return sum(math.prod(shape) * element_bytes for shape, element_bytes in variables.values())

"""The rows of a checkpoint's tables; a process holds in memory only the rows that it reads.

The files are mapped: what was read lies in the system's page cache, which uses only memory that no process
needs. So the memory of a process that looks up rows, sums them up or copies them does not depend on the
number of rows, nor on the number of rows that deltas changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.model.tables.checkpoint_files import RowFile, SavedTable, delta_rows

# How many rows are read at once at most, so that their indices take little memory.
_AT_ONCE = 1 << 14

Numbers = npt.NDArray[Any]


class SavedRows:
    """The rows of a table, or of a slot of a table, in the files beside a checkpoint.

    They stay readable if the files are removed meanwhile.
    """

    def __init__(self, checkpoint: Path, table: SavedTable) -> None:
        """Map the files of a checkpoint; `checkpoint` is its path without a suffix.

        Raises OSError, and ValueError if a file is too short.
        """
        self._rows, self._files = table.layout, list(table.sha256)
        self.shape, self.dtype = table.layout.shape, np.dtype(table.layout.dtype)
        first = table.layout.files_of(0)
        self._rows_of_file, self._files_of_part = first[0].rows, len(first)
        self._mapped = {
            (file.part, file.number): np.memmap(
                f"{checkpoint}.{file.suffix}", self.dtype, mode="r", shape=(file.rows, *self.shape[1:])
            )
            for file in self._files
        }
        self._deltas = [_Delta(checkpoint, table, file) for file in table.deltas]

    def read(self, rows: npt.NDArray[np.int64]) -> Numbers:
        """Return the rows with these numbers in the whole table, in the same order: [len(rows), ...].

        They have the values after all deltas. Raises IndexError if the table has no such row.
        """
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.shape[0]:
            raise IndexError(f"{self._rows.table} has rows 0 to {self.shape[0] - 1}")
        positions, part = np.divmod(rows, self._rows.parts)
        number, place = np.divmod(positions, self._rows_of_file)
        file = part * self._files_of_part + number
        by_file = np.argsort(file, kind="stable")
        values = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for own in np.split(by_file, np.flatnonzero(np.diff(file[by_file])) + 1):
            if len(own):
                values[own] = self._mapped[int(part[own[0]]), int(number[own[0]])][place[own]]
        for delta in self._deltas:
            delta.overwrite(values, part, positions)
        return values

    def chunks(self) -> Iterator[tuple[RowFile, Numbers]]:
        """Yield (RowFile, rows) for at most 16,384 rows at a time, until all rows have come, file by file.

        The rows have their values after all deltas. The `part`, `first` and `rows` of the RowFile say which
        rows they are.
        """
        for file in self._files:
            for start in range(0, file.rows, _AT_ONCE):
                some = replace(file, first=file.first + start, rows=min(_AT_ONCE, file.rows - start))
                yield some, self.read(some.first_row + some.parts * np.arange(some.rows))

    def part(self, number: int, parts: int) -> "PartOfRows":
        """Return the rows that ps `number` holds if there are `parts` ps; they are read only when needed."""
        return PartOfRows(self, number, parts)


class _Delta:
    """The rows in one file of a delta, and their positions in the part, in rising order."""

    def __init__(self, checkpoint: Path, table: SavedTable, file: RowFile) -> None:
        self._part, path = file.part, f"{checkpoint}.{file.positions.suffix}"
        self._positions = np.memmap(path, table.layout.positions.dtype, mode="r", shape=(file.rows,))
        self._values = delta_rows(checkpoint, table, file)
        self._first, self._last = int(self._positions[0]), int(self._positions[-1])

    def overwrite(self, values: Numbers, part: Numbers, positions: Numbers) -> None:
        """Overwrite in `values` the rows that this file has.

        Row i of `values` is at position `positions[i]` of part number `part[i]`.
        """
        within = (part == self._part) & (positions >= self._first) & (positions <= self._last)
        rows = np.flatnonzero(within)
        wanted = positions[rows].astype(self._positions.dtype)
        at = np.searchsorted(self._positions, wanted)
        are_here = self._positions[at] == wanted
        values[rows[are_here]] = self._values[at[are_here]]


@dataclass(frozen=True)
class PartOfRows:
    """Part `number` of a table cut into `parts` parts. It is read like an array, some rows at a time."""

    rows: SavedRows
    number: int
    parts: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return (len(range(self.number, self.rows.shape[0], self.parts)), *self.rows.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the part's numbers."""
        return self.rows.dtype

    def __getitem__(self, some: slice) -> Numbers:
        """Return the rows at positions `some` of the part: [rows, ...]. The step of the slice must be 1."""
        start, stop, _ = some.indices(self.shape[0])
        values = np.empty((stop - start, *self.shape[1:]), self.dtype)
        for begin in range(start, stop, _AT_ONCE):
            positions = np.arange(begin, min(begin + _AT_ONCE, stop))
            rows = self.rows.read(positions * self.parts + self.number)
            values[begin - start : begin - start + len(rows)] = rows
        return values

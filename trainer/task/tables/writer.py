"""Writes the rows of one cut into files, in a thread of the process that holds the rows, beside training.

A *cut* is the state of all rows at one moment. The thread ends once all rows of the cut are in files, or when
it is stopped; nothing waits for a chief that is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.engine.tables.changed_rows import ALL, CHANGED, MarkedPart
from trainer.host.whole_files import file_sha256
from trainer.model.checkpoints import bring_to_disk
from trainer.model.fingerprint import sum_before, sum_of_rows
from trainer.model.tables.checkpoint_files import (
    RowFile,
    RowLayout,
    SavedTable,
    delta_rows,
    positions_in,
    rows_in,
)

Numbers = npt.NDArray[Any]


class Stopped(Exception):  # noqa: N818 - not an error of the program
    """The cut is not wanted any more, because `CutWriting.stop` was called."""


class _Files:
    """The files of one variable, into which the rows of one part are written."""

    def __init__(self, path: Path, rows: RowLayout, part: int, delta: int) -> None:
        """Remove the files that an interrupted save left at this path.

        `path` is the path of the files without their suffixes, `rows` the variable's layout, `part` the
        number of the part, `delta` the delta's number, or 0 for all rows.
        """
        self._path, self._rows_in_a_file = path, rows.rows_in_a_file(delta)
        # It is not known yet how many rows a delta will have; the names of its files do not depend on it.
        self._file = _file_of(rows, part, delta)
        for leftover in path.parent.glob(f"{path.name}.{self._file.suffix.partition('-of-')[0]}-of-*"):
            leftover.unlink(missing_ok=True)

    def write(self, places: npt.NDArray[np.int64], values: Numbers) -> None:
        """Write the rows `values`, [rows, ...], at `places`, int64 [rows], rising; create missing files.

        A place is the number of a row, counted from 0 over all files of the part.
        """
        numbers = places // self._rows_in_a_file
        for number in np.unique(numbers):
            begin, end = np.searchsorted(numbers, [number, number + 1])
            name = replace(self._file, number=int(number)).suffix
            self._write_into(Path(f"{self._path}.{name}"), places[begin:end], values[begin:end])

    def _write_into(self, path: Path, places: npt.NDArray[np.int64], values: Numbers) -> None:
        begins = np.flatnonzero(np.append(True, np.diff(places) != 1))
        with open(path, "r+b" if path.exists() else "wb") as file:  # noqa: PTH123
            for begin, end in zip(begins, [*begins[1:], len(places)], strict=True):
                file.seek(int(places[begin]) % self._rows_in_a_file * self._file.row_bytes)
                file.write(np.ascontiguousarray(values[begin:end]).reshape(-1).view(np.uint8).data)


class PartOfCut:
    """The rows of a table and of its optimizer slots that one ps holds, at the moment of the cut.

    Attributes:
        marked: reads the rows.
        layouts: the layout of each variable: the table and its slots.
        table: the table's name.
        count: the number of rows that were written.
        sums: {variable: sum of its written rows for the fingerprint, modulo 2**64}.
        not_finite: the variables with a number that is not finite.

    """

    def __init__(self, marked: MarkedPart, layouts: Mapping[str, RowLayout], part: int, delta: int) -> None:
        """Prepare to write; nothing is read or written yet.

        `layouts` is {variable: layout}. `part` is the number of the part, which is the ps's. `delta` is 0 to
        write all rows, else the number of the delta, which has only the rows that changed.
        """
        self.marked, self._part, self._delta = marked, part, delta
        self.layouts = [layouts[variable.name] for variable in marked.variables]
        self.table = self.layouts[0].table.partition("/")[0]
        self.count, self.sums = 0, {layout.table: 0 for layout in self.layouts}
        self.not_finite: list[str] = []

    def write(self, session: tf.compat.v1.Session, path: Path) -> Iterator[None]:
        """Write the rows into files at this path (without their suffixes), a block of rows before each yield.

        Raises OSError and tf.errors.OpError; ValueError if the number of rows is not the expected number.
        """
        files = [_Files(path, layout, self._part, self._delta) for layout in self._written_layouts]
        layout = self.layouts[0]
        expected, delta_positions = layout.rows_of_part(self._part), np.empty(0, layout.positions.dtype)
        queued: list[Sequence[Numbers]] = []
        if self._delta:
            arrays = [*self.marked.wanted_positions(session)]
            queued = [*self.marked.take_queued(session)]
            # The rows of a delta are in the order of their positions.
            arrays += [delta_positions, *(rows[0] for rows in queued)]
            delta_positions = np.unique(np.concatenate(arrays)).astype(delta_positions.dtype)
            expected = len(delta_positions)
        for positions, *values in self.marked.read(session, queued):
            places, written = positions, values
            if self._delta:
                own = positions.astype(delta_positions.dtype)
                places, written = np.searchsorted(delta_positions, own), [own, *values]
            for file, rows in zip(files, written, strict=True):
                file.write(places, rows)
            self._count(positions, values)
            yield
        if self.count != expected:
            raise ValueError(f"it has read {self.count} rows of {self.table}, and not {expected}")

    def _count(self, positions: npt.NDArray[np.int64], values: Sequence[Numbers]) -> None:
        self.count += len(positions)
        for layout, rows in zip(self.layouts, values, strict=True):
            file = _file_of(layout, self._part, 0)
            total = self.sums[layout.table] + sum_of_rows(rows, file, positions)
            self.sums[layout.table] = total % 2**64
            if layout.table not in self.not_finite and not np.all(np.isfinite(rows)):
                self.not_finite.append(layout.table)

    def files(self, layout: RowLayout) -> list[RowFile]:
        """Return the files with the written rows of the variable that has this layout, in their order."""
        if self._delta:
            return layout.delta_files(self._part, self._delta, self.count)
        return layout.files_of(self._part)

    def finish(self, path: Path) -> dict[str, str]:
        """Bring the files at this path (without their suffixes) to the disk; return {suffix: SHA-256} of all.

        Raises ValueError if the files do not read back as they were written, and OSError.
        """
        hashes = {}
        for file in (file for layout in self._written_layouts for file in self.files(layout)):
            written = Path(f"{path}.{file.suffix}")
            bring_to_disk(written)
            hashes[file.suffix] = file_sha256(written)
        for layout in self.layouts:
            table = SavedTable(layout, 0, {})
            total = sum(self._sum_of(path, table, file) for file in self.files(layout)) % 2**64
            if total != self.sums[layout.table]:
                raise ValueError(f"{layout.table} does not read back as it was written")
        return hashes

    def change_of_sum(self, former: Path, tables: Mapping[str, SavedTable], path: Path, table: str) -> int:
        """Return by how much a delta changes the sum of the variable `table`, modulo 2**64.

        The delta's files are at `path`. `former` is the path of the files of the checkpoint before, `tables`
        is {name: table} of that checkpoint. Both paths have no suffixes. Raises OSError.
        """
        layout = next(layout for layout in self.layouts if layout.table == table)
        return (self.sums[table] - sum_before(former, tables[table], path, self.files(layout))) % 2**64

    @property
    def _written_layouts(self) -> list[RowLayout]:
        """The layouts of what is written: of each variable; in a delta, of the positions before them."""
        return [self.layouts[0].positions, *self.layouts] if self._delta else self.layouts

    @staticmethod
    def _sum_of(path: Path, table: SavedTable, file: RowFile) -> int:
        if not file.delta:
            return sum_of_rows(rows_in(path, table, file), file)
        return sum_of_rows(delta_rows(path, table, file), file, positions_in(path, table, file))


class CutWriting:
    """A cut whose rows a thread writes. A cut is the state of all rows at one moment.

    Attributes:
        parts: the parts that the thread writes.
        path: the path of the files without their suffixes.

    """

    def __init__(self, session: tf.compat.v1.Session, parts: Sequence[PartOfCut], path: Path) -> None:
        """Prepare the thread, without starting it; `session` must be a session to this process itself."""
        self.parts, self.path, self._session = parts, path, session
        self._stop, self._error = Event(), list[Exception]()
        self._thread = Thread(target=self._write, daemon=True, name="rows of a cut")

    def begin(self, *, changed: bool) -> None:
        """Make the cut of all rows as they are now, and start the thread; the caller has blocked pushes.

        With `changed`, only the rows are written that changed since the last save. Pushes may go on
        afterwards.
        """
        for part in self.parts:
            part.marked.begin(self._session, CHANGED if changed else ALL)
        self._thread.start()

    def wait(self) -> None:
        """Return once all rows are written; raise the thread's exception if it failed or was stopped."""
        self._thread.join()
        for error in self._error:
            raise error

    def stop(self) -> None:
        """Stop the thread, and return once it has ended; the files stay."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _write(self) -> None:
        try:
            # The parts take turns, so that rows kept by pushes do not wait in memory until other tables end.
            for _ in zip_longest(*(part.write(self._session, self.path) for part in self.parts)):
                if self._stop.is_set():
                    raise Stopped
        except Exception as error:
            self._error.append(error)
            # End the save at the marks, so that pushes no longer keep rows that nobody reads.
            with suppress(tf.errors.OpError):
                for part in self.parts:
                    part.marked.forget(self._session)


def _file_of(rows: RowLayout, part: int, delta: int) -> RowFile:
    """Return the first file of part `part`; its `suffix` is right, but its number of rows is 0."""
    return RowFile(rows.table, part, rows.parts, 0, 0, 0, rows.row_bytes, delta)

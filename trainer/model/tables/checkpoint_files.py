"""The files with the rows of tables that belong to a checkpoint, and the manifest that lists them.

Each ps writes the rows that it holds of a table, or of a slot of a table, into files of at most 16 MiB on its
own disk: the plain numbers of some rows, one after the other, in little-endian byte order. A later checkpoint
may use these same files, with a *delta*: a file with the rows that changed since, in the order of their
positions in the part of the ps, and a file with these positions. Deltas are numbered; the last delta that has
a row gives the row's value (`rows_in`).

The manifest, `model.ckpt-<global step>.tables.json`, lies beside the chief's file. It has the layout of the
rows, the SHA-256 of each file, and the sum for the fingerprint (fingerprint.py). The chief's file holds the
SHA-256 of the manifest, so neither counts without the other. Names and sizes of files follow from the layout
and the number of rows in each delta.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.host.whole_files import file_sha256

# The variable of a checkpoint that holds the SHA-256 of its manifest.
TABLES = "psfleet/tables"
SHA256_BYTES = 32
MANIFEST = "tables.json"
MOST_BYTES = 16 << 20
# The most rows in a file of a delta, for rows of any width. So the files of a table, of its slots and of
# positions have the same numbers of rows.
ROWS_OF_DELTA = 1 << 17
_VERSION = 2
# With n ps, row r is on ps r mod n, at position r div n of its part.
_LAYOUT = "mod"
_NAME = re.compile(r"[A-Za-z0-9_]+(?:/[A-Za-z0-9_]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DTYPES = ("float32", "int64")
_POSITIONS = "positions"

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class RowFile:
    """A file with some rows of a table's part.

    Attributes:
        table: the name of the table, or of a slot of a table.
        part: the number of the part, which is the number of its ps.
        parts: how many parts the table has.
        number: the number of the file among the files of the part (or of the part's delta), from 0.
        first: the position in the part of the file's first row; in a delta, its place among the delta's rows.
        rows: how many rows the file has.
        row_bytes: the bytes of a row.
        delta: the number of the delta, from 1; 0 for a file of a whole part.

    """

    table: str
    part: int
    parts: int
    number: int
    first: int
    rows: int
    row_bytes: int
    delta: int = 0

    @property
    def suffix(self) -> str:
        """What follows "model.ckpt-<global step>." in the file's name.

        Example: "tables_16.0-of-2.00000.rows"
        """
        delta = f".delta{self.delta}" if self.delta else ""
        return f"{self.table.replace('/', '.')}{delta}.{self.part}-of-{self.parts}.{self.number:05}.rows"

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return self.rows * self.row_bytes

    @property
    def first_row(self) -> int:
        """The number, in the whole table, of the file's first row; only for a file of a whole part.

        The next rows of the file are `parts` rows apart.
        """
        return self.first * self.parts + self.part

    @property
    def positions(self) -> "RowFile":
        """The file with the positions of this file's rows, for a file of a delta; use only its `suffix`."""
        return replace(self, table=_positions_of(self.table), row_bytes=0)


@dataclass(frozen=True)
class RowLayout:
    """How the rows of a table, or of a slot of a table, lie in parts and files.

    `table` is the name, `dtype` and `shape` are of the whole table, `parts` is the number of parts.
    """

    table: str
    dtype: str
    shape: tuple[int, ...]
    parts: int

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    @property
    def positions(self) -> "RowLayout":
        """The layout of the positions of a delta's rows, one number for each row.

        A table and its slots share these positions.
        """
        dtype = positions_dtype(self.shape[0])
        return replace(self, table=_positions_of(self.table), dtype=dtype, shape=self.shape[:1])

    def rows_of_part(self, part: int) -> int:
        """Return the number of rows of part number `part`."""
        return len(range(part, self.shape[0], self.parts))

    def files_of(self, part: int) -> list[RowFile]:
        """Return the files of part number `part`, in the order of the part's rows."""
        return self._files(part, self.rows_of_part(part), self.rows_in_a_file(0), 0)

    def delta_files(self, part: int, delta: int, rows: int) -> list[RowFile]:
        """Return the files of delta number `delta` that hold its `rows` rows of part number `part`.

        They are in the order of the rows; [] if `rows` is 0.
        """
        return self._files(part, rows, self.rows_in_a_file(delta), delta)

    def rows_in_a_file(self, delta: int) -> int:
        """Return the largest number of rows in a file of delta number `delta`; 0 is for whole parts."""
        return ROWS_OF_DELTA if delta else max(1, MOST_BYTES // self.row_bytes)

    def _files(self, part: int, rows: int, at_once: int, delta: int) -> list[RowFile]:
        return [
            RowFile(
                self.table, part, self.parts, number, first, min(at_once, rows - first), self.row_bytes, delta
            )
            for number, first in enumerate(range(0, rows, at_once))
        ]


@dataclass(frozen=True)
class SavedTable:
    """A table, or a slot of a table, as a checkpoint has it.

    Attributes:
        layout: the layout of the rows.
        total: the sum of all numbers for the fingerprint (fingerprint.py).
        sha256: {file of a whole part: SHA-256}.
        deltas: {file of a delta: SHA-256}, in the order of the deltas.
        positions: {file with the positions of a delta's rows: SHA-256}; a table and its slots share these
            files.

    """

    layout: RowLayout
    total: int
    sha256: Mapping[RowFile, str]
    deltas: Mapping[RowFile, str] = field(default_factory=dict)
    positions: Mapping[RowFile, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[RowFile, str]:
        """{file: SHA-256} of all files: whole parts, deltas, and last the positions of deltas.

        A restore sets rows in this order.
        """
        return {**self.sha256, **self.deltas, **self.positions}

    @property
    def last_delta(self) -> int:
        """The number of the last delta; 0 if there is none."""
        return max((file.delta for file in self.deltas), default=0)

    def rows_of_delta(self, delta: int, part: int) -> int:
        """Return how many rows of part number `part` are in delta number `delta`; 0 if it does not exist."""
        return sum(file.rows for file in self.deltas if (file.delta, file.part) == (delta, part))


def positions_dtype(rows: int) -> str:
    """Return the type of the positions in a delta, "int32" or "int64", for a table of `rows` rows."""
    return "int32" if rows < 1 << 31 else "int64"


def rows_in(checkpoint: Path, table: SavedTable, file: RowFile) -> Numbers:
    """Return the rows of a file of a whole part, with the values that they have after all deltas.

    `checkpoint` is the path of the checkpoint's files without their suffixes; the files must be good. Rows
    are read from the disk when they are used: only rows that deltas changed are in this process's memory.
    Raises OSError.
    """
    shape = table.layout.shape[1:]
    values: Numbers = np.memmap(
        f"{checkpoint}.{file.suffix}", table.layout.dtype, mode="c", shape=(file.rows, *shape)
    )
    for delta in (delta for delta in table.deltas if delta.part == file.part):
        positions = positions_in(checkpoint, table, delta)
        begin, end = np.searchsorted(positions, [file.first, file.first + file.rows])
        values[positions[begin:end] - file.first] = delta_rows(checkpoint, table, delta)[begin:end]
    return values


def positions_in(checkpoint: Path, table: SavedTable, delta: RowFile) -> npt.NDArray[np.int64]:
    """Return the positions, in the part, of the rows in a delta's file: int64 [rows], in rising order.

    `checkpoint` is the path of the checkpoint's files without their suffixes. Raises OSError.
    """
    dtype = table.layout.positions.dtype
    return np.fromfile(f"{checkpoint}.{delta.positions.suffix}", dtype).astype(np.int64)


def delta_rows(checkpoint: Path, table: SavedTable, delta: RowFile) -> Numbers:
    """Return the rows in a delta's file, [rows, ...], which are read from the disk when they are used.

    `checkpoint` is the path of the checkpoint's files without their suffixes. Raises OSError.
    """
    shape = (delta.rows, *table.layout.shape[1:])
    return np.memmap(f"{checkpoint}.{delta.suffix}", table.layout.dtype, mode="r", shape=shape)


def _positions_of(name: str) -> str:
    """Return the name of the positions of a table or slot.

    Example: "tables_16/Adam" -> "tables_16/positions"
    """
    return f"{name.partition('/')[0]}/{_POSITIONS}"


def manifest_of(step: int, tables: Sequence[SavedTable]) -> str:
    """Return the manifest of the checkpoint of global step `step`, as text; `tables` must not be empty."""
    parts, deltas = tables[0].layout.parts, tables[0].last_delta
    content = {
        "version": _VERSION,
        "global_step": step,
        "layout": _LAYOUT,
        "ps": parts,
        "tables": {
            table.layout.table: {
                "dtype": table.layout.dtype,
                "shape": list(table.layout.shape),
                "sum": str(table.total),
                "sha256": _by_part(table.sha256, parts, 0),
            }
            for table in tables
        },
        "deltas": [_delta_described(tables, delta) for delta in range(1, deltas + 1)],
    }
    return json.dumps(content, indent=1) + "\n"


def _delta_described(tables: Sequence[SavedTable], delta: int) -> dict[str, Any]:
    """Return {name: {"rows": [number for each part], "sha256": [hashes for each part]}} of a delta.

    The names are of tables, slots and positions.
    """
    described = {}
    for table in tables:
        parts = range(table.layout.parts)
        names = table.layout.table, table.layout.positions.table
        for name, hashes in zip(names, (table.deltas, table.positions), strict=True):
            described[name] = {
                "rows": [table.rows_of_delta(delta, part) for part in parts],
                "sha256": _by_part(hashes, len(parts), delta),
            }
    return described


def _by_part(hashes: Mapping[RowFile, str], parts: int, delta: int) -> list[list[str]]:
    return [
        [sha256 for file, sha256 in hashes.items() if (file.part, file.delta) == (part, delta)]
        for part in range(parts)
    ]


def tables_in(manifest: str, step: int) -> list[SavedTable]:
    """Return the tables in a manifest, in its order; `step` is the global step of its checkpoint.

    Raises ValueError, which says why, if the manifest is of another step or version, or if its files do not
    fit its layout. Raises LookupError, TypeError or AttributeError if a field is missing or has another type.
    """
    content = json.loads(manifest)
    expected = {"version": _VERSION, "global_step": step, "layout": _LAYOUT}
    for name, value in expected.items():
        if content.get(name) != value:
            found = f"its manifest of tables has {name} {content.get(name)!r}"
            raise ValueError(f"{found}, expected {value!r}")
    parts = content.get("ps")
    if type(parts) is not int or parts < 1:
        raise ValueError(f"its manifest of tables has ps {parts!r}, expected a number of ps")
    deltas = content["deltas"]
    return [_table_in(name, described, parts, deltas) for name, described in content["tables"].items()]


def whole_files_of(path: Path) -> list[str]:
    """Return the SHA-256 of each file of a whole part of a checkpoint's tables, in the order of the manifest.

    `path` is the checkpoint's path without a suffix. The list is empty if the checkpoint has no tables, or no
    manifest that can be read.
    """
    try:
        tables = tables_in(
            Path(f"{path}.{MANIFEST}").read_text(encoding="utf-8"), int(path.name.rpartition("-")[2])
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []
    return [sha256 for table in tables for sha256 in table.sha256.values()]


def _table_in(
    name: str, described: Mapping[str, Any], parts: int, deltas: Sequence[Mapping[str, Any]]
) -> SavedTable:
    shape, dtype = described["shape"], described["dtype"]
    if not _NAME.fullmatch(name) or dtype not in _DTYPES or not _is_shape(shape):
        raise ValueError(f"its manifest of tables has {name!r} of {dtype!r} and shape {shape!r}")
    rows = RowLayout(name, dtype, tuple(shape), parts)
    whole = _hashes_in(name, described["sha256"], [rows.files_of(part) for part in range(parts)])
    changed, positions = dict[RowFile, str](), dict[RowFile, str]()
    for number, delta in enumerate(deltas, 1):
        for layout, hashes in ((rows, changed), (rows.positions, positions)):
            entry = delta[layout.table]
            counts = entry["rows"]
            if len(counts) != parts or not all(
                type(count) is int and 0 <= count <= rows.rows_of_part(part)
                for part, count in enumerate(counts)
            ):
                raise ValueError(f"its manifest has {counts!r} rows of {layout.table} in delta {number}")
            files = [layout.delta_files(part, number, count) for part, count in enumerate(counts)]
            hashes.update(_hashes_in(layout.table, entry["sha256"], files))
    return SavedTable(rows, int(described["sum"]), whole, changed, positions)


def _hashes_in(
    name: str, hashes: Sequence[Sequence[object]], files: Sequence[Sequence[RowFile]]
) -> dict[RowFile, str]:
    """Return {file: SHA-256}; `hashes` and `files` have a sequence for each part, in the same order.

    `name` is the table's name. Raises ValueError if the numbers of hashes and files differ, or if a hash is
    not 64 hex digits.
    """
    if len(hashes) != len(files):
        raise ValueError(
            f"its manifest has {len(hashes)} parts of {name}, expected {len(files)}, one for each ps"
        )
    hash_of: dict[RowFile, str] = {}
    for part, (own, expected) in enumerate(zip(hashes, files, strict=True)):
        good = [sha256 for sha256 in own if isinstance(sha256, str) and _SHA256.fullmatch(sha256)]
        if len(own) != len(expected) or len(good) != len(own):
            raise ValueError(
                f"its manifest has {len(good)} files of part {part} of {name}, expected {len(expected)}"
            )
        hash_of.update(zip(expected, good, strict=True))
    return hash_of


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) in {1, 2}
        and all(type(size) is int and 0 < size < 1 << 48 for size in shape)
    )


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a text, such as a manifest, in hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_problem(path: Path, size: int, sha256: str) -> str:
    """Return what is wrong with a file of rows: missing, unreadable, another size or SHA-256; "" if nothing.

    `size` is the expected number of bytes.
    """
    try:
        if (found := path.stat().st_size) != size:
            return f"{path.name} has {found} bytes, expected {size}"
        if file_sha256(path) != sha256:
            return f"{path.name} is damaged, or of another save: its SHA-256 is not that in the manifest"
    except OSError as error:
        return f"{path.name} is not there" if isinstance(error, FileNotFoundError) else str(error)
    return ""


def problems_beside(path: Path, tables: Sequence[SavedTable]) -> Iterator[str]:
    """Yield, for each bad file of rows beside the checkpoint at `path` (without a suffix), what is wrong."""
    for table in tables:
        for file, sha256 in table.files.items():
            if problem := file_problem(Path(f"{path}.{file.suffix}"), file.size, sha256):
                yield problem

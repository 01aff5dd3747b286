"""The files with the rows of tables that belong to a checkpoint, and the manifest that lists them.

Each ps writes the rows that it holds of a table, or of a slot of one, into files of at most 64 MiB on its own
disk: the plain numbers of some rows, one after the other, in little-endian byte order. The manifest,
`model.ckpt-<global step>.tables.json`, lies beside the chief's file. It has the layout of the rows, the
SHA-256 of each file, and the sum for the fingerprint (fingerprint.py). The chief's file holds the SHA-256 of
the manifest, so neither counts without the other. Names and sizes of files follow from the layout alone.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# The variable of a checkpoint that holds the SHA-256 of its manifest.
TABLES = "psfleet/tables"
SHA256_BYTES = 32
MANIFEST = "tables.json"
MOST_BYTES = 64 << 20
_VERSION = 1
# Row r is on ps r mod n, for n ps, at place r div n.
_LAYOUT = "mod"
_NAME = re.compile(r"[A-Za-z0-9_]+(?:/[A-Za-z0-9_]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DTYPES = ("float32", "int64")
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class RowFile:
    """A file with some rows of a table's part; `first` is the place of its first row in the part."""

    table: str
    part: int
    parts: int
    number: int
    first: int
    rows: int
    row_bytes: int

    @property
    def suffix(self) -> str:
        """What follows "model.ckpt-<global step>." in the file's name."""
        return f"{self.table.replace('/', '.')}.{self.part}-of-{self.parts}.{self.number:05}.rows"

    @property
    def size(self) -> int:
        """The bytes of the file."""
        return self.rows * self.row_bytes

    @property
    def first_row(self) -> int:
        """The row of the whole table that comes first in the file; the next ones are `parts` rows apart."""
        return self.first * self.parts + self.part


@dataclass(frozen=True)
class Rows:
    """The rows of a table, or of a slot of one: shape and type of the whole, and the number of parts."""

    table: str
    dtype: str
    shape: tuple[int, ...]
    parts: int

    @property
    def row_bytes(self) -> int:
        """The bytes of a row."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize

    def files_of(self, part: int) -> list[RowFile]:
        """Return the files of a part, in the order of its rows."""
        held, at_once = len(range(part, self.shape[0], self.parts)), max(1, MOST_BYTES // self.row_bytes)
        return [
            RowFile(self.table, part, self.parts, number, first, min(at_once, held - first), self.row_bytes)
            for number, first in enumerate(range(0, held, at_once))
        ]


@dataclass(frozen=True)
class SavedTable:
    """A table as a checkpoint has it: `total` is its sum for the fingerprint, `sha256` is by file."""

    rows: Rows
    total: int
    sha256: Mapping[RowFile, str]


def manifest_of(step: int, tables: Sequence[SavedTable]) -> str:
    """Return the manifest of a checkpoint as text."""
    described = {
        table.rows.table: {
            "dtype": table.rows.dtype,
            "shape": list(table.rows.shape),
            "sum": str(table.total),
            "sha256": [
                [table.sha256[file] for file in table.rows.files_of(part)] for part in range(table.rows.parts)
            ],
        }
        for table in tables
    }
    parts = tables[0].rows.parts
    content = {
        "version": _VERSION, "global_step": step, "layout": _LAYOUT, "ps": parts, "tables": described
    }  # fmt: skip
    return json.dumps(content, indent=1) + "\n"


def tables_in(manifest: str, step: int) -> list[SavedTable]:
    """Return the tables in the manifest of the checkpoint of this step. Raises ValueError that says why."""
    content = json.loads(manifest)
    expected = {"version": _VERSION, "global_step": step, "layout": _LAYOUT}
    for name, value in expected.items():
        if content.get(name) != value:
            found = f"its manifest of tables has {name} {content.get(name)!r}"
            raise ValueError(f"{found}, expected {value!r}")
    parts = content.get("ps")
    if type(parts) is not int or parts < 1:
        raise ValueError(f"its manifest of tables has ps {parts!r}, expected a number of ps")
    return [_table_in(name, described, parts) for name, described in content["tables"].items()]


def _table_in(name: str, described: Mapping[str, Any], parts: int) -> SavedTable:
    shape, dtype = described["shape"], described["dtype"]
    if not _NAME.fullmatch(name) or dtype not in _DTYPES or not _is_shape(shape):
        raise ValueError(f"its manifest of tables has {name!r} of {dtype!r} and shape {shape!r}")
    rows, hashes = Rows(name, dtype, tuple(shape), parts), described["sha256"]
    if len(hashes) != parts:
        raise ValueError(f"its manifest has {len(hashes)} parts of {name}, expected {parts}, one for each ps")
    found: dict[RowFile, str] = {}
    for part, its in enumerate(hashes):
        files = rows.files_of(part)
        if len(its) != len(files) or not all(
            isinstance(sha256, str) and _SHA256.fullmatch(sha256) for sha256 in its
        ):
            raise ValueError(
                f"its manifest has {len(its)} files of part {part} of {name}, expected {len(files)}"
            )
        found.update(zip(files, its, strict=True))
    return SavedTable(rows, int(described["sum"]), found)


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) in {1, 2}
        and all(type(size) is int and 0 < size < 1 << 48 for size in shape)
    )


def sha256_of_text(text: str) -> str:
    """Return the SHA-256 of a manifest."""
    return hashlib.sha256(text.encode()).hexdigest()


def file_problem(path: Path, size: int, sha256: str) -> str:
    """Return what is wrong with a file of rows; "" if nothing is."""
    try:
        with path.open("rb") as file:
            if (found := os.fstat(file.fileno()).st_size) != size:
                return f"{path.name} has {found} bytes, expected {size}"
            hashed = hashlib.sha256()
            while block := file.read(_AT_ONCE):
                hashed.update(block)
    except OSError as error:
        return f"{path.name} is not there" if isinstance(error, FileNotFoundError) else str(error)
    if hashed.hexdigest() != sha256:
        return f"{path.name} is damaged, or of another save: its SHA-256 is not that in the manifest"
    return ""


def problems_beside(path: Path, tables: Sequence[SavedTable]) -> Iterator[str]:
    """Yield what is wrong with the files of rows beside a checkpoint's file, which has this path."""
    for table in tables:
        for file, sha256 in table.sha256.items():
            if problem := file_problem(Path(f"{path}.{file.suffix}"), file.size, sha256):
                yield problem

"""The rows of tables in files beside a checkpoint, as whole arrays."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.model.checkpoints import Checkpoint
from trainer.model.fingerprint import sum_of_rows
from trainer.model.tables.checkpoint_files import RowLayout, SavedTable, rows_in

Numbers = npt.NDArray[Any]


def whole_tables(checkpoint: Checkpoint) -> dict[str, Numbers]:
    """Name -> value of the tables of a checkpoint, and of their slots."""
    found = {}
    for table in checkpoint.tables:
        layout = table.layout
        whole = found[layout.table] = np.zeros(layout.shape, layout.dtype)
        for file in table.sha256:
            last = file.first_row + (file.rows - 1) * file.parts
            whole[file.first_row : last + 1 : file.parts] = rows_in(checkpoint.path, table, file)
    return found


def write_delta(path: Path, table: SavedTable, whole: Numbers, changed: Numbers) -> SavedTable:
    """Write a further delta with some rows of the whole table; return the table with it, and its old sum."""
    deltas = dict(table.deltas)
    for part in range(table.layout.parts):
        its = np.sort(changed[changed % table.layout.parts == part])
        for file in table.layout.delta_files(part, table.last_delta + 1, len(its)):
            some = its[file.first : file.first + file.rows]
            positions = (some // table.layout.parts).astype(table.layout.positions.dtype)
            for suffix, content in ((file.suffix, whole[some]), (file.positions.suffix, positions)):
                Path(f"{path}.{suffix}").write_bytes(content.tobytes())
            deltas[file] = hashlib.sha256(whole[some].tobytes()).hexdigest()
    return replace(table, deltas=deltas)


def write_tables(path: Path, tables: Mapping[str, Numbers], parts: int) -> list[SavedTable]:
    """Write such files, as so many ps would."""
    saved = []
    for name, value in tables.items():
        rows, total, sha256 = RowLayout(name, value.dtype.name, value.shape, parts), 0, {}
        for file in (file for part in range(parts) for file in rows.files_of(part)):
            values = value[file.part :: parts][file.first : file.first + file.rows]
            content = np.ascontiguousarray(values).tobytes()
            Path(f"{path}.{file.suffix}").write_bytes(content)
            sha256[file] = hashlib.sha256(content).hexdigest()
            total += sum_of_rows(values, file)
        saved.append(SavedTable(rows, total % 2**64, sha256))
    return saved

"""Sets the rows of tables to the rows in files, wherever the rows lie.

A file is read whole on the device that has it, and each row goes straight from there to the ps that holds the
row. So a checkpoint of any number of ps is restored on any other number, file by file: first the files of
whole parts, then the files of deltas in their order.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer.model.pieces import TableVariable
from trainer.model.tables.checkpoint_files import RowFile, positions_dtype

v1 = tf.compat.v1


class RowLoading:
    """The operations that load files which lie on the disk of one task, in the default graph."""

    def __init__(self, tables: Sequence[TableVariable], device: str) -> None:
        """Add the operations; the files are on the disk of the task of `device`."""
        with tf.name_scope("row_loading"), tf.device(device):
            self._path, self._rows = v1.placeholder(tf.string, []), v1.placeholder(tf.int64, [2])
            # For a file of a delta, the path of the file with the positions of its rows; else "".
            self._positions = v1.placeholder_with_default("", [])
            self._loads = {table.name: self._load(table) for table in tables}

    def run_all(
        self, session: tf.compat.v1.Session, checkpoint: str | Path, files: Iterable[RowFile]
    ) -> None:
        """Set the rows on all ps to the rows in `files`, file by file in this order: a later file wins.

        So whole parts must come first, then the deltas. `checkpoint` is the checkpoint's path without a
        suffix, on the host that has the files. Files of variables that are not in the graph are skipped.
        Raises tf.errors.OpError.
        """
        for file in files:
            if load := self._loads.get(file.table):
                feeds: dict[tf.Tensor, object] = {
                    self._path: f"{checkpoint}.{file.suffix}",
                    self._rows: (file.part if file.delta else file.first_row, file.parts),
                }
                if file.delta:
                    feeds[self._positions] = f"{checkpoint}.{file.positions.suffix}"
                session.run(load, feeds)

    def _load(self, table: TableVariable) -> tf.Operation:
        numbers = tf.io.decode_raw(tf.raw_ops.ReadFile(filename=self._path), table.dtype.base_dtype)
        rows = tf.reshape(numbers, [-1, *table.shape[1:]])
        first, apart = tf.unstack(self._rows)
        row_numbers = first + apart * self._places(table, tf.shape(rows, tf.int64)[0])
        parts = len(table.pieces)
        part_of = tf.cast(row_numbers % np.int64(parts), tf.int32)
        positions = tf.dynamic_partition(row_numbers // np.int64(parts), part_of, parts)
        values = tf.dynamic_partition(rows, part_of, parts)
        updates = []
        for piece, at, own in zip(table.pieces, positions, values, strict=True):
            with tf.device(piece.device):
                updates.append(
                    tf.raw_ops.ResourceScatterUpdate(resource=piece.handle, indices=at, updates=own)
                )
        return tf.group(*updates)

    def _places(self, table: TableVariable, count: tf.Tensor) -> tf.Tensor:
        """Return int64 [count]: 0 to `count` - 1 for a file of a whole part; for a delta, rows' positions."""

        def positions() -> tf.Tensor:
            dtype = tf.as_dtype(positions_dtype(table.rows))
            return tf.cast(tf.io.decode_raw(tf.raw_ops.ReadFile(filename=self._positions), dtype), tf.int64)

        return tf.cond(tf.equal(self._positions, ""), lambda: tf.range(count), positions)

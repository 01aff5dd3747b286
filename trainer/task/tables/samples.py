"""The `tables` records of a worker: which table rows the worker's sampled batches need.

A sample costs the same for tables of any size, because the tables are not read.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trainer.contract.records import RecordWriter
from trainer.model.models.model import Table

Ids = npt.NDArray[np.int64]
# This many batches are enough to see which rows are hot. The bound also limits the memory for the counts.
MOST_SAMPLES = 50
_HOTTEST = 5


class TableSamples:
    """Counts the rows that sampled batches need, and records the counts after each sample."""

    def __init__(self, records: RecordWriter, tables: Sequence[tuple[Table, int]], ps_count: int) -> None:
        """Count for `tables`, pairs (table, number of its first row in the fused table).

        The fused table is one variable with the rows of several tables, one table after the other. Its row r
        lies on ps number r mod `ps_count`, the number of ps.
        """
        self._records, self._tables = records, tables
        self._counts = [_Counts(table, begin, ps_count) for table, begin in tables]
        self._samples = self._examples = 0

    @property
    def wants_more(self) -> bool:
        """Whether `add` is to be called again: there are tables, and fewer than 50 batches are counted."""
        return bool(self._tables) and self._samples < MOST_SAMPLES

    def add(self, global_step: int, examples: int, ids: Sequence[Ids]) -> None:
        """Count a batch of `examples` examples, and write a `tables` record with all counts so far.

        `ids` are the row ids that the batch needs, with repetitions: one int64 array for each table, in the
        order of `tables`.
        """
        self._samples, self._examples = self._samples + 1, self._examples + examples
        for counts, needed in zip(self._counts, ids, strict=True):
            counts.add(needed)
        fields = {counts.name: counts.fields() for counts in self._counts}
        sampled = {"samples": self._samples, "examples": self._examples}
        self._records.write("tables", {"global_step": global_step, **sampled, "tables": fields})


class _Counts:
    """How often the sampled batches needed each row of a table."""

    def __init__(self, table: Table, begin: int, ps_count: int) -> None:
        self.name, self._table, self._begin = table.name, table, begin
        self._rows, self._times = np.empty(0, np.int64), np.empty(0, np.int64)
        # For each ps, the number of rows that travelled from it: a row travels once for a batch.
        self._of_ps = np.zeros(ps_count, np.int64)

    def add(self, ids: Ids) -> None:
        rows, times = np.unique(ids, return_counts=True)
        self._of_ps += np.bincount((rows + self._begin) % len(self._of_ps), minlength=len(self._of_ps))
        together, places = np.unique(np.concatenate([self._rows, rows]), return_inverse=True)
        summed = np.zeros(len(together), np.int64)
        np.add.at(summed, places, np.concatenate([self._times, times]))
        self._rows, self._times = together, summed

    def fields(self) -> Mapping[str, object]:
        """Return the table's fields in a `tables` record, {field: value}.

        They are `rows`, `width`, `ids` (needed, with repetitions), `distinct` (rows), `hot` ({row: count} of
        the five most needed rows), `of_ps` ({ps: rows that travelled from it}), and `colliding` if the table
        hashes ids.
        """
        hottest = np.argsort(-self._times, kind="stable")[:_HOTTEST]
        return {
            "rows": self._table.rows,
            "width": self._table.width,
            "ids": int(self._times.sum()),
            "distinct": len(self._rows),
            "hot": {str(self._rows[place]): int(self._times[place]) for place in hottest},
            "of_ps": {f"ps{ps}": int(count) for ps, count in enumerate(self._of_ps)},
            **({"colliding": round(self._colliding(), 6)} if self._table.hashed else {}),
        }

    def _colliding(self) -> float:
        """Return the share (0 to 1) of the different ids that share a row with another id by hashing."""
        begins, sizes = np.array(self._table.hashed, np.int64).T
        used = np.searchsorted(self._rows, begins + sizes) - np.searchsorted(self._rows, begins)
        return colliding_share(used.tolist(), sizes.tolist())


def colliding_share(used: Sequence[int], sizes: Sequence[int]) -> float:
    """Return the share (0 to 1) of different ids that share a row with another id; 0 without ids.

    A table may hash ids into several ranges of rows: range i has `sizes[i]` rows, of which `used[i]` have
    at least one id. The number of ids is estimated from the free rows (linear counting, Whang et al.
    1990); for a full range the estimate is a lower bound. An id is alone with the probability that no other
    id has its row.

    Example: colliding_share([50], [100]) -> 0.495 (half of the rows are used, by about 69 ids)
    """
    ids = alone = 0.0
    for rows, size in zip(used, sizes, strict=True):
        if rows and size > 1:
            free, of_one = max(size - rows, 0.5) / size, (size - 1) / size
            count = max(math.log(free) / math.log(of_one), 1.0)
            ids, alone = ids + count, alone + count * of_one ** (count - 1)
    return 1 - alone / ids if ids else 0.0

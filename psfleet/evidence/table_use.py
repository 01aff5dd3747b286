"""What the workers recorded about a model's tables: which rows the batches that they sampled needed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords

MOST_TABLES, _MOST_HOT = 40, 5


@dataclass(frozen=True)
class TableUse:
    """The rows of a table that one worker's sampled batches needed.

    The table has `rows` rows of `width` numbers. The worker sampled `samples` batches with `examples`
    examples. These had `ids` ids, which named `distinct` of the rows. `hot` is {row: how often it was named}
    of the at most five most frequent rows. `of_ps` is {ps: rows that travel from it for such batches}; a row
    counts once per batch. `colliding` is the part, 0 to 1, of the different ids that share a row with another
    id, None unless ids are hashed.
    """

    name: str
    worker: str
    rows: int
    width: int
    samples: int
    examples: int
    ids: int
    distinct: int
    hot: Mapping[str, int]
    of_ps: Mapping[str, int]
    colliding: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return {field: value} without `name` and without fields that are None, as in the figures."""
        return {name: value for name, value in vars(self).items() if name != "name" and value is not None}


def table_uses(run: Run) -> dict[str, TableUse]:
    """Return {table: its use by the worker that sampled the most examples}, of at most 40 tables.

    If two workers sampled as many, the first counts. Records that contradict themselves are left out.
    """
    found: dict[str, TableUse] = {}
    for worker in run.with_lost:
        for use in _of_worker(worker):
            if use.name not in found or use.examples > found[use.name].examples:
                found[use.name] = use
    return dict(list(found.items())[:MOST_TABLES])


def _of_worker(worker: TaskRecords) -> Iterable[TableUse]:
    """Yield a TableUse for each table in the worker's `tables` record with the most samples.

    Each process and each session counts from 0, so records cannot be added. Tables with impossible numbers
    are left out. Yield nothing if no such record has samples.
    """
    records = [record for record in worker.of("tables") if record.integer("samples") > 0]
    if not records:
        return
    last = max(records, key=lambda record: record.integer("samples"))
    tables = last.fields["tables"]
    samples, examples = last.integer("samples"), last.integer("examples")
    for name, of in tables.items() if isinstance(tables, Mapping) else ():
        use = _use(str(name), worker.name, samples, examples, of)
        if use is not None:
            yield use


def _use(name: str, worker: str, samples: int, examples: int, of: object) -> TableUse | None:
    if not isinstance(of, Mapping):
        return None
    counts = [_count(of.get(field)) for field in ("rows", "width", "ids", "distinct")]
    rows, width, ids, distinct = counts
    hot, of_ps = _counts(of.get("hot")), _counts(of.get("of_ps"))
    is_whole = all(counts) and samples <= examples and distinct <= min(rows, ids)
    if not is_whole or sum(hot.values()) > ids or sum(of_ps.values()) > ids:
        return None
    hottest = sorted(hot.items(), key=lambda entry: -entry[1])[:_MOST_HOT]
    part = of.get("colliding")
    is_part = isinstance(part, int | float) and not isinstance(part, bool) and 0 <= part <= 1
    colliding = float(part) if part is not None and is_part else None
    return TableUse(
        name, worker, rows, width, samples, examples, ids, distinct, dict(hottest), of_ps, colliding
    )


def _counts(value: object) -> dict[str, int]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {str(name): _count(number) for name, number in pairs if _count(number)}


def _count(value: object) -> int:
    """Return `value` if it is a positive integer, else 0; the value is what a host wrote."""
    return value if type(value) is int and value > 0 else 0

"""The workloads and the rows of the benchmark. To add one of them, add a line to WORKLOADS or to ROWS."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from benchmarks.tables import COUNT, WIDTH, Tables

Flags = Mapping[str, object]

_PROGRAMS = "benchmarks.programs"
CORES = len(os.sched_getaffinity(0))
WORKERS = 2
SLOWER = 5
# The names of the workloads without tables.
DENSE = ("mlp", "cnn", "wide")


@dataclass(frozen=True)
class Workload:
    """A model and its batch, as flags of the trainer.

    Attributes:
        parameters: the number of trained values outside `tables`.
        batch_size: the examples in a batch.
        loss: the training loss until which seconds are counted.
        flags: the trainer's flags.
        tables: the embedding tables; None without tables.
        ps: the least number of ps in rows that have ps.

    """

    name: str
    title: str
    parameters: int
    batch_size: int
    loss: float
    flags: Flags
    tables: Tables | None = None
    ps: int = 1

    @property
    def bytes_of_a_batch(self) -> float:
        """The least bytes that a worker moves for a batch: parameters, table rows, and their gradients."""
        of_rows = self.tables.bytes_of_a_batch(self.batch_size) if self.tables else 0.0
        return 2 * 4 * self.parameters + of_rows

    @property
    def heading(self) -> str:
        """The title, with the number of parameters, the batch size, the loss, and what tables add.

        Example: "CNN: 333,526 parameters, batch 128, loss 0.25"
        """
        words = f"{self.title}: {self.parameters:,} parameters, batch {self.batch_size}, loss {self.loss:g}"
        if self.tables is None:
            return words
        needed = COUNT * self.tables.different_ids(self.batch_size)
        megabytes = self.tables.bytes_of_rows / 1e6
        return f"{words}, {needed:,.0f} rows in a batch, {megabytes:,.0f} MB of rows and slots"


@dataclass(frozen=True)
class Row:
    """A way to train: a module that is started as each task, and its flags.

    Attributes:
        workers: the number of workers; 0 for a single process.
        coordinator: whether there is one more task, the coordinator.
        tf_config: whether the tasks read their places from TF_CONFIG.
        batches: the number of batches in a global step.
        synchronous: whether a step needs a batch of each worker, backups excepted.
        straggler: whether the last worker is SLOWER times slower.
        workloads: the names of the row's workloads.

    """

    name: str
    title: str
    module: str = f"{_PROGRAMS}.psfleet"
    ps: int = 1
    workers: int = WORKERS
    coordinator: bool = False
    tf_config: bool = False
    flags: Flags = field(default_factory=dict)
    batches: int = 1
    synchronous: bool = False
    straggler: bool = False
    workloads: tuple[str, ...] = DENSE

    @property
    def base(self) -> str:
        """The name of the row of psfleet to compare with: "psfleet_sync" if synchronous, else "psfleet"."""
        return "psfleet_sync" if self.synchronous else "psfleet"

    def with_ps(self, least: int) -> "Row":
        """Return this row with at least `least` ps; unchanged if it has more, or no ps at all."""
        return replace(self, ps=max(self.ps, least)) if self.ps else self

    def with_workers(self, workers: int) -> "Row":
        """Return this row with `workers` workers. A synchronous row then has no backup workers."""
        if not self.synchronous:
            return replace(self, workers=workers)
        known = {"replicas_to_aggregate": workers} if "replicas_to_aggregate" in self.flags else {}
        return replace(self, workers=workers, batches=workers, flags={**self.flags, **known})

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks: ps, then workers, then the coordinator; the last task writes the progress.

        Example: ("ps0", "worker1", "worker0")
        """
        serving = [f"ps{index}" for index in range(self.ps)] if self.workers else []
        workers = [f"worker{index}" for index in reversed(range(self.workers or 1))]
        return (*serving, *workers, *(["chief0"] if self.coordinator else []))


# All rows have the learning rates of the trainer's models.
_ADAM = {"optimizer": "adam"}
_MLP = {"model": "mnist_mlp", **_ADAM}
_tables = partial(
    Workload,
    parameters=143_105,
    batch_size=512,
    loss=0.495,
    flags={"model": "wide_deep", "optimizer": "adagrad"},
    ps=2,
)
_LARGE, _SMALL = (f"{COUNT} tables of {rows} x {WIDTH}" for rows in ("100,000", "1,000"))
# A batch needs the same number of rows in both of these.
FEW = _tables("tables_few", _SMALL, tables=Tables(1_000, 1_000, 1.05))
MANY = _tables("tables_many", f"{_LARGE}, ids of 1,000 rows", tables=Tables(100_000, 1_000, 1.05))
WORKLOADS = (
    Workload("mlp", "MLP 784-100-10", 79_510, 100, 0.05, {**_MLP, "hidden_units": 100}),
    Workload("cnn", "CNN", 333_526, 128, 0.25, {"model": "cnn", **_ADAM}),
    Workload("wide", "wide MLP, 20 MB", 5_000_560, 100, 0.4, {**_MLP, "hidden_units": 6_290}),
    _tables("tables", _LARGE, tables=Tables(100_000, 100_000, 1.05)),
    _tables("tables_skewed", f"{_LARGE}, Zipf 1.2", tables=Tables(100_000, 100_000, 1.2)),
    FEW,
    MANY,
)

# The workers share the cores of this machine; a single process has all of them.
_SHARED, _ALL = {"threads": max(1, CORES // WORKERS)}, {"threads": CORES}
_SYNC = {"replication": "sync", "replicas_to_aggregate": WORKERS, **_SHARED}
# Synchronous steps with one gradient for each worker, except for backups.
_sync = partial(Row, flags=_SHARED, batches=WORKERS, synchronous=True, workloads=("mlp", "cnn", "tables"))
_psfleet_sync = partial(_sync, flags=_SYNC)
_WITH_TABLES = (*DENSE, "tables")
ROWS = (
    Row("psfleet", "psfleet", flags=_SHARED, workloads=tuple(workload.name for workload in WORKLOADS)),
    Row("psfleet_2_ps", "psfleet, 2 ps", ps=2, flags=_SHARED),
    Row("psfleet_4_ps", "psfleet, 4 ps", ps=4, flags=_SHARED, workloads=(*DENSE, "tables_skewed")),
    Row("psfleet_bfloat16", "psfleet, bfloat16", flags={"wire_dtype": "bfloat16", **_SHARED}),
    Row(
        "psfleet_push_8",
        "psfleet, 8 batches to a push",
        flags={"push_every": 8, **_SHARED},
        batches=8,
        workloads=("mlp", "wide"),
    ),
    Row(
        "psfleet_least_bytes",
        "psfleet, 8 batches to a push, bfloat16",
        flags={"push_every": 8, "wire_dtype": "bfloat16", **_SHARED},
        batches=8,
        workloads=("wide",),
    ),
    Row(
        "psfleet_damped",
        "psfleet, damped steps",
        flags={"staleness": "damped", **_SHARED},
        workloads=("cnn",),
    ),
    Row(
        "tutorial",
        "the tutorials' program",
        f"{_PROGRAMS}.tutorial",
        flags=_SHARED,
        workloads=_WITH_TABLES,
    ),
    Row(
        "strategy",
        "ParameterServerStrategy",
        f"{_PROGRAMS}.strategy",
        coordinator=True,
        tf_config=True,
        flags=_SHARED,
        workloads=_WITH_TABLES,
    ),
    Row("alone", "one process alone", f"{_PROGRAMS}.alone", workers=0, flags=_ALL),
    Row("alone_1_thread", "one process, 1 thread", f"{_PROGRAMS}.alone", workers=0, flags={"threads": 1}),
    _psfleet_sync("psfleet_sync", "psfleet, sync"),
    _sync("sync_replicas", "SyncReplicasOptimizer", f"{_PROGRAMS}.sync_replicas"),
    _sync(
        "mirrored",
        "MultiWorkerMirroredStrategy",
        f"{_PROGRAMS}.mirrored",
        ps=0,
        tf_config=True,
        workloads=("mlp", "cnn"),
    ),
    _psfleet_sync(
        "psfleet_straggler",
        f"psfleet, sync, one worker {SLOWER} times slower",
        straggler=True,
        workloads=("mlp",),
    ),
    _psfleet_sync(
        "psfleet_backup",
        "psfleet, sync, the same and a backup",
        workers=WORKERS + 1,
        straggler=True,
        workloads=("mlp",),
    ),
)

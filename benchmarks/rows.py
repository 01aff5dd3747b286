"""The benchmark's workloads and rows. A further row is another line in one of the two tables here."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

Flags = Mapping[str, object]

TRAINER = "trainer"
CORES = len(os.sched_getaffinity(0))
WORKERS = 2
SLOWER = 5


@dataclass(frozen=True)
class Workload:
    """A model and its batch, as flags of the trainer.

    `parameters` is the number of trained values, `loss` the training loss until which seconds are counted.
    """

    name: str
    title: str
    parameters: int
    batch_size: int
    loss: float
    flags: Flags

    @property
    def parameter_bytes(self) -> int:
        """The bytes that a worker pulls in a step, and pushes as gradients."""
        return 4 * self.parameters


@dataclass(frozen=True)
class Row:
    """A way to train: a module that is started as each task, and its flags.

    Without `workers` it is a single process. With a `coordinator` there is one more task. With `tf_config`
    the tasks read their places from TF_CONFIG. `batches` is the number of batches in a global step. A
    `synchronous` step needs one of each worker, backups excepted. With `straggler` the last worker is SLOWER
    times slower. `workloads` are the names of the row's workloads; none means all.
    """

    name: str
    title: str
    module: str = TRAINER
    ps: int = 1
    workers: int = WORKERS
    coordinator: bool = False
    tf_config: bool = False
    flags: Flags = field(default_factory=dict)
    batches: int = 1
    synchronous: bool = False
    straggler: bool = False
    workloads: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The name of psfleet's own row with which this one is compared."""
        return "psfleet_sync" if self.synchronous else "psfleet"

    def with_workers(self, workers: int) -> "Row":
        """Return the same row with so many workers, and without backups."""
        if not self.synchronous:
            return replace(self, workers=workers)
        known = {"replicas_to_aggregate": workers} if "replicas_to_aggregate" in self.flags else {}
        return replace(self, workers=workers, batches=workers, flags={**self.flags, **known})

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks; the last one writes the run's progress."""
        serving = [f"ps{index}" for index in range(self.ps)] if self.workers else []
        workers = [f"worker{index}" for index in reversed(range(self.workers or 1))]
        return (*serving, *workers, *(["chief0"] if self.coordinator else []))


# All use Adam with the rates of the trainer's models.
WORKLOADS = (
    Workload("mlp", "MLP 784-100-10", 79_510, 100, 0.05, {"model": "mnist_mlp", "hidden_units": 100}),
    Workload("cnn", "CNN", 333_526, 128, 0.25, {"model": "cnn"}),
    Workload("wide", "wide MLP, 20 MB", 5_000_560, 100, 0.4, {"model": "mnist_mlp", "hidden_units": 6_290}),
)

# The workers share the cores of this machine; a single process has all of them.
_SHARED, _ALL = {"threads": max(1, CORES // WORKERS)}, {"threads": CORES}
_SYNC = {"replication": "sync", "replicas_to_aggregate": WORKERS, **_SHARED}
# Synchronous steps with one gradient for each worker, except for backups.
_sync = partial(Row, flags=_SHARED, batches=WORKERS, synchronous=True, workloads=("mlp", "cnn"))
_psfleet_sync = partial(_sync, flags=_SYNC)
_PROGRAMS = "benchmarks.programs"
ROWS = (
    Row("psfleet", "psfleet", flags=_SHARED),
    Row("psfleet_2_ps", "psfleet, 2 ps", ps=2, flags=_SHARED),
    Row("psfleet_4_ps", "psfleet, 4 ps", ps=4, flags=_SHARED),
    Row("psfleet_bfloat16", "psfleet, bfloat16", flags={"wire_dtype": "bfloat16", **_SHARED}),
    Row(
        "psfleet_push_8",
        "psfleet, 8 batches to a push",
        flags={"push_every": 8, **_SHARED},
        batches=8,
        workloads=("mlp", "wide"),
    ),
    Row("tutorial", "the tutorials' program", f"{_PROGRAMS}.tutorial", flags=_SHARED),
    Row(
        "strategy",
        "ParameterServerStrategy",
        f"{_PROGRAMS}.strategy",
        coordinator=True,
        tf_config=True,
        flags=_SHARED,
    ),
    Row("alone", "one process alone", f"{_PROGRAMS}.alone", workers=0, flags=_ALL),
    Row("alone_1_thread", "one process, 1 thread", f"{_PROGRAMS}.alone", workers=0, flags={"threads": 1}),
    _psfleet_sync("psfleet_sync", "psfleet, sync"),
    _sync("sync_replicas", "SyncReplicasOptimizer", f"{_PROGRAMS}.sync_replicas"),
    _sync("mirrored", "MultiWorkerMirroredStrategy", f"{_PROGRAMS}.mirrored", ps=0, tf_config=True),
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

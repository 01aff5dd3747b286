"""Runs of the small model with tables, whose chief saves and restores them; all tasks are in this process."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Event

import numpy as np
import tensorflow as tf

from tests.trainer.engine.table_model import MODEL, Numbers, set_values, settings_of, values_of
from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import TrainingSettings
from trainer.coordination.ledger_parts import COUNTERS, GLOBAL_STEP
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.checkpoints import (
    UNFINISHED,
    Checkpoint,
    CheckpointFolder,
    checkpoint_paths,
    read_checkpoint,
    step_in,
    tensors_to_save,
)
from trainer.model.tables.checkpoint_files import tables_in
from trainer.task.tables.chief import TableSaves
from trainer.task.tables.local_files import TableFiles


class SavingTasks:
    """Servers of so many ps and of a worker in this process, each with a disk of its own.

    Runs of the same settings share each worker's graph, as the sessions of a process do.
    """

    def __init__(self, ps: int, folder: Path) -> None:
        self.tasks, self.disks = Tasks(ps), [folder / f"ps{number}" for number in range(ps)]
        self._graph = cache(self._build)
        for number, disk in enumerate(self.disks):
            TableFiles(self.tasks.servers[2 + number].target, f"/job:ps/task:{number}", disk).start()
        self.workers_disk = folder / "worker1"
        TableFiles(self.tasks.servers[1].target, "/job:worker/task:1", self.workers_disk).start()

    def remove_files(self) -> None:
        """Leave nothing on the disks."""
        for disk in [*self.disks, self.workers_disk]:
            for file in disk.glob("*/*"):
                file.unlink()

    def begin(
        self, worker: int, settings: TrainingSettings
    ) -> tuple[TrainingGraph, TrainingSession, dict[str, tf.Tensor]]:
        """Return a worker's graph, a new session, and what it fetches to save."""
        graph, tensors = self._graph(worker, settings)
        return graph, graph.session(self.tasks.target(worker)), tensors

    def _build(self, worker: int, settings: TrainingSettings) -> tuple[TrainingGraph, dict[str, tf.Tensor]]:
        graph, session = self.tasks.begin(worker, settings, MODEL)
        session.close()
        with graph.graph.as_default():
            return graph, tensors_to_save(graph.variables, f"/job:worker/task:{worker}/device:CPU:0")


class SavingRun:
    """The chief of a run, with its own disk."""

    def __init__(self, cluster: SavingTasks, disk: Path, **settings: object) -> None:
        self._cluster, self._settings = cluster, settings_of(**settings)
        self.disks, self.workers_disk = cluster.disks, cluster.workers_disk
        self.graph, self.session, self.tensors = cluster.begin(0, self._settings)
        self.session.initialise()
        self.folder = CheckpointFolder(disk / "checkpoints", keep=2)
        self.tables = TableSaves(self.graph, self.folder.directory, cluster.tasks.target(0))

    def values(self) -> dict[str, Numbers]:
        """What the ps hold now."""
        return values_of(self.session.session, self.graph)

    def spoil(self) -> None:
        """Let the ps hold other numbers than any run does."""
        others = {name: np.full_like(its, 77) for name, its in self.values().items()}
        set_values(self.session.session, self.graph, others)

    def steps(self, count: int) -> None:
        """Take so many as the chief."""
        for _ in range(count):
            self.session.session.run(self.graph.step)

    def push(self, until: Event) -> None:
        """Take steps as another worker."""
        graph, session, _ = self._cluster.begin(1, self._settings)
        while not until.is_set():
            session.session.run(graph.step)
        session.close()

    def save(self, *, all_rows: bool = False) -> tuple[Checkpoint, dict[str, Numbers]]:
        """Save as the chief does; return the checkpoint, and what the ps held while pushes were held up."""
        if all_rows:
            self.tables.drop_connection()
        with self.tables.blocked_pushes():
            before = self._unfinished()
            values = self.session.session.run(self.tensors)
            held = self.values()
            step = int(values[COUNTERS][GLOBAL_STEP])
            self.tables.begin_writing(step)
            # Nothing is written while pushes stand still, however many rows there are.
            assert self._unfinished() <= before
        manifest = self.tables.finish(step)
        path, fingerprint = self.folder.write(values, manifest)
        self.tables.keep([step_in(kept) for kept in checkpoint_paths(self.folder.directory)])
        self.tables.base_next_save_on(step, tables_in(manifest, step), fingerprint)
        checkpoint, problem = read_checkpoint(path)
        assert checkpoint is not None, problem
        assert checkpoint.fingerprint == fingerprint
        return checkpoint, held

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore as the chief does."""
        assert self.tables.fetch_missing_files(checkpoint) == ""
        self.session.restore(checkpoint)
        self.tables.restore(self.session.session, checkpoint)

    def restore_alone(self, checkpoint: Checkpoint, ps: Sequence[str]) -> None:
        """Restore what lies on ps that have lost all."""
        self.session.create(ps)
        assert self.tables.fetch_missing_files(checkpoint, ps) == ""
        self.session.restore(checkpoint, ps)
        self.tables.restore(self.session.session, checkpoint, ps)

    def close(self) -> None:
        """End its session."""
        self.session.close()

    def _unfinished(self) -> set[Path]:
        return {file for disk in self.disks for file in disk.glob(f"*/*{UNFINISHED}*")}


def same(own: dict[str, Numbers], others: dict[str, Numbers]) -> None:
    """Assert that variables which both have hold the same bits."""
    names = own.keys() & others.keys()
    assert {"weights", "tables_4", "tables_1"} <= names
    assert [name for name in sorted(names) if own[name].tobytes() != others[name].tobytes()] == []

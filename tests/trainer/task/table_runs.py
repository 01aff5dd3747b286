"""Runs of the small model with tables, whose chief saves and restores them; all tasks are in this process."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event

from tests.trainer.engine.table_model import MODEL, Numbers, settings_of, values_of
from tests.trainer.engine.transfers import Tasks
from trainer.coordination.ledger_parts import COUNTERS, GLOBAL_STEP
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
    """Servers of so many ps and of a worker in this process, each with a disk of its own."""

    def __init__(self, ps: int, folder: Path) -> None:
        self.tasks, self.disks = Tasks(ps), [folder / f"ps{number}" for number in range(ps)]
        for number, disk in enumerate(self.disks):
            TableFiles(self.tasks.servers[2 + number].target, f"/job:ps/task:{number}", disk).start()
        self.workers_disk = folder / "worker1"
        TableFiles(self.tasks.servers[1].target, "/job:worker/task:1", self.workers_disk).start()


class SavingRun:
    """The chief of a run, with its own disk."""

    def __init__(self, cluster: SavingTasks, disk: Path, **settings: object) -> None:
        self._tasks, self._settings = cluster.tasks, settings_of(**settings)
        self.disks, self.workers_disk = cluster.disks, cluster.workers_disk
        self.graph, self.session = self._tasks.begin(0, self._settings, MODEL)
        self.session.initialise()
        self.folder = CheckpointFolder(disk / "checkpoints", keep=2)
        self.tables = TableSaves(self.graph, self.folder.directory, self._tasks.target(0))
        with self.graph.graph.as_default():
            self.tensors = tensors_to_save(self.graph.variables, "/job:worker/task:0/device:CPU:0")

    def values(self) -> dict[str, Numbers]:
        """What the ps hold now."""
        return values_of(self.session.session, self.graph)

    def steps(self, count: int) -> None:
        """Take so many as the chief."""
        for _ in range(count):
            self.session.session.run(self.graph.step)

    def push(self, until: Event) -> None:
        """Take steps as another worker."""
        graph, session = self._tasks.begin(1, self._settings, MODEL)
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

"""The trainer with a fault. Started like the trainer, with the fault's name before its flags."""

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import tensorflow as tf

from trainer import __main__ as program
from trainer.engine.optimizers import Gradients
from trainer.engine.tables import optimizers
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.pieces import AnyVariable, TableVariable, pieces_of
from trainer.model.tables import lookup
from trainer.model.tables.checkpoint_files import RowFile
from trainer.model.tables.lookup import LookUp, RowGradients
from trainer.model.tables.restoring import RowLoading
from trainer.task.tables.chief import TableSaves
from trainer.task.tables.local_files import Answer, Fields, TableFiles

# What is made of each gradient.
FAULTS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "zeros": tf.zeros_like,
    # As small as the noise of a batch: with the gradients of others the model still converges.
    "noise": lambda gradient: tf.random.normal(tf.shape(gradient), stddev=0.1),
}
_OWN = "own/"


def break_gradients(fault: str) -> None:
    """Let what this process computes a loss of push something else than its gradients."""
    learn, broken = TrainingGraph.learn, FAULTS[fault]

    def learn_nothing(*asked: object, **by_name: object) -> tuple[tf.Tensor, Gradients]:
        loss, gradients = learn(*asked, **by_name)  # type: ignore[arg-type]
        return loss, [(broken(gradient), variable) for gradient, variable in gradients]

    TrainingGraph.learn = learn_nothing  # type: ignore[method-assign]


def drop_rows() -> None:
    """Let zeros be pushed as the gradients of all rows, beside the right gradients of the variables."""
    push = LookUp.push

    def push_zeros(look_up: LookUp, gradients: Sequence[tf.Tensor]) -> list[tuple[RowGradients, tf.Variable]]:
        return push(look_up, [tf.zeros_like(its) for its in gradients])

    LookUp.push = push_zeros  # type: ignore[method-assign, assignment]


def shift_rows() -> None:
    """Let this process pull and push for each id the row of the next one."""
    needed = lookup._needed

    def need_next(fused: lookup._Fused, ids: Sequence[tf.Tensor]) -> lookup._Needed:
        return needed(fused, [(its + 1) % of.rows for its, (_, of) in zip(ids, fused.tables, strict=True)])

    lookup._needed = need_next


def own_tables() -> None:
    """Let this process train tables of its own, which lie on the ps beside the others'."""
    create, begin = lookup.create_filled, TrainingSession.__init__

    def create_own(name: str, *asked: object, **by_name: object) -> tf.Variable:
        return create(name if name.startswith(_OWN) else _OWN + name, *asked, **by_name)  # type: ignore[arg-type]

    def begin_with_own(session: TrainingSession, graph: TrainingGraph, target: str) -> None:
        begin(session, graph, target)
        session.session.run([its.initializer for its in graph.rows])
        session.set_first_values()

    lookup.create_filled = optimizers.create_filled = create_own  # type: ignore[attr-defined]
    TrainingSession.__init__ = begin_with_own  # type: ignore[method-assign, assignment]


def restore_one_ps() -> None:
    """Let what lies on the second ps stay as it was made when a checkpoint is restored."""
    create, files_of = RestoreOperation.__init__, TableSaves._files_of

    def create_half(operation: RestoreOperation, variables: Sequence[AnyVariable]) -> None:
        create(operation, variables)
        for piece in (piece for variable in variables for piece in pieces_of(variable)):
            if "/task:1" in piece.device and piece.op.name in operation._assignments:
                value, _ = operation._assignments[piece.op.name]
                operation._assignments[piece.op.name] = (value, tf.no_op())

    def half_files_of(
        saves: TableSaves, only: Collection[str] | None, checkpoint: Checkpoint
    ) -> dict[str, dict[RowFile, str]]:
        return {**files_of(saves, only, checkpoint), "ps1": {}}

    RestoreOperation.__init__ = create_half  # type: ignore[method-assign, assignment]
    TableSaves._files_of = half_files_of  # type: ignore[method-assign, assignment]


def restore_permuted() -> None:
    """Let a table's rows be divided among the ps in halves rather than by turns."""
    load, rows = RowLoading._load, dict[str, int]()

    def load_noted(loading: RowLoading, table: TableVariable) -> tf.Operation:
        rows[table.name] = table.rows
        return load(loading, table)

    def load_halves(
        loading: RowLoading, session: tf.compat.v1.Session, checkpoint: str | Path, files: Iterable[RowFile]
    ) -> None:
        for file in files:
            if file.table not in rows or file.delta:
                continue
            begin = file.part * -(-rows[file.table] // file.parts) + file.first
            feeds = {loading._path: f"{checkpoint}.{file.suffix}", loading._rows: (begin, 1)}
            session.run(loading._loads[file.table], feeds)

    RowLoading._load = load_noted  # type: ignore[method-assign, assignment]
    RowLoading.run_all = load_halves  # type: ignore[method-assign, assignment]


def restore_table_of(path: str) -> None:
    """Let the rows of another checkpoint be restored, of its widest table."""
    run_all = RowLoading.run_all

    def load_others(
        loading: RowLoading, session: tf.compat.v1.Session, checkpoint: str | Path, files: Iterable[RowFile]
    ) -> None:
        for file in files:
            if "tables_16" not in file.table:
                run_all(loading, session, checkpoint, [file])
            elif not file.delta:
                run_all(loading, session, path, [file])

    RowLoading.run_all = load_others  # type: ignore[method-assign, assignment]


def offer_other_rows() -> None:
    """Let a ps say that its files are good, and move what they have by a row of 16 numbers."""

    def lie(files: TableFiles, asked: Fields) -> Answer:
        for suffix, _, _ in asked["files"]:
            path = files._row_file(asked, suffix)
            content = path.read_bytes()
            path.write_bytes(content[64:] + content[:64])
        return {"problems": {}}

    TableFiles._do_check = lie  # type: ignore[method-assign, assignment]


_OTHER_FAULTS: Mapping[str, Callable[[], None]] = {
    "rows_dropped": drop_rows,
    "rows_shifted": shift_rows,
    "own_tables": own_tables,
    "one_ps_restored": restore_one_ps,
    "restored_permuted": restore_permuted,
    "other_rows_offered": offer_other_rows,
    **{fault: partial(break_gradients, fault) for fault in FAULTS},
}

if __name__ == "__main__":
    chosen = sys.argv.pop(1)
    _OTHER_FAULTS.get(chosen, partial(restore_table_of, chosen))()
    os._exit(program.main(sys.argv[1:]))

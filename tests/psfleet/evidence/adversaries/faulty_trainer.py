"""The trainer with a fault. Started like the trainer, with the fault's name before its flags."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer import __main__ as program
from trainer.engine import row_optimizers
from trainer.engine.optimizers import Gradients
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model import checkpoints, tables
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.pieces import AnyVariable, TableVariable, pieces_of, split_array
from trainer.model.tables import LookUp, RowGradients

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
    needed = tables._needed

    def need_next(fused: tables._Fused, ids: Sequence[tf.Tensor]) -> tables._Needed:
        return needed(fused, [(its + 1) % of.rows for its, (_, of) in zip(ids, fused.tables, strict=True)])

    tables._needed = need_next


def own_tables() -> None:
    """Let this process train tables of its own, which lie on the ps beside the others'."""
    create, begin = tables.create_filled, TrainingSession.__init__

    def create_own(name: str, *asked: object, **by_name: object) -> tf.Variable:
        return create(name if name.startswith(_OWN) else _OWN + name, *asked, **by_name)  # type: ignore[arg-type]

    def begin_with_own(session: TrainingSession, graph: TrainingGraph, target: str) -> None:
        begin(session, graph, target)
        held = graph.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        session.session.run([its.initializer for its in held if its.op.name.startswith(_OWN)])
        session.session.run(graph.initializers[len(held) :])

    tables.create_filled = row_optimizers.create_filled = create_own  # type: ignore[attr-defined]
    TrainingSession.__init__ = begin_with_own  # type: ignore[method-assign, assignment]


def restore_one_ps() -> None:
    """Let what lies on the second ps keep its first values when a checkpoint is restored."""
    create = RestoreOperation.__init__

    def create_half(operation: RestoreOperation, variables: Sequence[AnyVariable]) -> None:
        create(operation, variables)
        for piece in (piece for variable in variables for piece in pieces_of(variable)):
            if "/task:1" in piece.device:
                value, _ = operation._assignments[piece.op.name]
                operation._assignments[piece.op.name] = (value, tf.no_op())

    RestoreOperation.__init__ = create_half  # type: ignore[method-assign, assignment]


def restore_permuted() -> None:
    """Let a table's rows be divided among the ps in halves rather than by turns."""

    def in_halves(variable: AnyVariable, value: npt.NDArray[np.generic]) -> list[npt.NDArray[np.generic]]:
        by_turns = split_array(variable, value)
        if not isinstance(variable, TableVariable):
            return by_turns
        return np.split(value, np.cumsum([len(part) for part in by_turns])[:-1])

    checkpoints.split_array = in_halves  # type: ignore[attr-defined]


def restore_table_of(path: str) -> None:
    """Let the tables of another checkpoint be restored."""
    values_in = RestoreOperation._values_in

    def with_others(
        operation: RestoreOperation, checkpoint: Checkpoint
    ) -> dict[str, npt.NDArray[np.generic]]:
        other, _ = checkpoints.read_checkpoint(Path(path))
        assert other is not None
        values = values_in(operation, checkpoint)
        return {name: other.values[name] if "tables_16" in name else value for name, value in values.items()}

    RestoreOperation._values_in = with_others  # type: ignore[method-assign, assignment]


_OTHER_FAULTS: Mapping[str, Callable[[], None]] = {
    "rows_dropped": drop_rows,
    "rows_shifted": shift_rows,
    "own_tables": own_tables,
    "one_ps_restored": restore_one_ps,
    "restored_permuted": restore_permuted,
    **{fault: partial(break_gradients, fault) for fault in FAULTS},
}

if __name__ == "__main__":
    chosen = sys.argv.pop(1)
    _OTHER_FAULTS.get(chosen, partial(restore_table_of, chosen))()
    os._exit(program.main(sys.argv[1:]))

"""Rows are saved as they were at the cut, each once, whatever pushes come between."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.engine.table_model import MODEL, Numbers, settings_of, values_of
from tests.trainer.engine.transfers import Tasks
from trainer.coordination.bounded_calls import open_session
from trainer.engine.tables import changed_rows
from trainer.engine.tables.changed_rows import ALL, CHANGED, MarkedPart, SharedVariable
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.pieces import TableVariable


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    """One ps."""
    return Tasks(1)


class _Part:
    """The rows of width 4 with their slots, as their ps reads them for a save."""

    def __init__(self, tasks: Tasks, graph: TrainingGraph) -> None:
        self.tables = {
            its.pieces[0].op.name: its
            for its in graph.variables
            if isinstance(its, TableVariable) and its.name.startswith("tables_4")
        }
        held = [SharedVariable.of(its.pieces[0]) for its in self.tables.values()]
        with tf.Graph().as_default() as own, tf.device("/job:ps/task:0/device:CPU:0"):
            self.marked = MarkedPart("tables_4/part_0", held)
        self.session = open_session(tasks.servers[2].target, own, [])

    def read(self, training: TrainingSession) -> tuple[dict[str, Numbers], list[int]]:
        """Return the rows as a save gets them, with a step after each read, and how often it gets each.

        They come in the order of their positions, unless none may wait for those before it.
        """
        found = {its.name: np.zeros(its.shape, its.dtype.as_numpy_dtype) for its in self.tables.values()}
        times, last = [0] * 28, -1
        for positions, *values in self.marked.read(self.session):
            for position in positions:
                times[position] += 1
                assert position > last or changed_rows._BYTES_WAITING == 0
                last = position
            for variable, rows in zip(self.marked.variables, values, strict=True):
                found[self.tables[variable.name].name][positions] = rows
            training.step(lambda: None)
        return found, times


@pytest.mark.parametrize(
    ("optimizer", "replication", "waiting"),
    few(
        [
            (optimizer, of, waiting)
            for optimizer in ("sgd", "adagrad", "adam", "ftrl")
            for of, waiting in (("async", 10_000), ("async", 0), ("sync", 10_000))
        ],
        ("adagrad", "sync", 10_000),
        ("adagrad", "async", 0),
        ("adam", "async", 10_000),
    ),
)
def test_rows_are_saved_as_they_were_at_the_cut(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch, optimizer: str, replication: str, waiting: int
) -> None:
    monkeypatch.setattr(changed_rows, "_BYTES_AT_ONCE", 200)
    monkeypatch.setattr(changed_rows, "_BYTES_WAITING", waiting)
    others: dict[str, Any] = (
        {"replication": replication, "replicas_to_aggregate": 1} if replication == "sync" else {}
    )
    graph, training = tasks.begin(0, settings_of(optimizer=optimizer, batch_size=1, **others), MODEL)
    training.initialise()
    training.last_step = 1000
    training.begin()
    part = _Part(tasks, graph)
    part.marked.forget(part.session)
    before = None
    for wanted in (ALL, CHANGED, CHANGED, ALL, CHANGED):
        part.marked.begin(part.session, wanted)
        at_the_cut = values_of(training.session, graph)
        found, times = part.read(training)
        names = [its.name for its in part.tables.values()]
        if wanted == ALL:
            assert times == [1] * 28
            expected = np.ones(28, bool)
        else:
            assert before is not None
            differs = [(at_the_cut[name] != before[name]).reshape(28, -1).any(axis=1) for name in names]
            expected = np.any(differs, axis=0)
            assert 0 < expected.sum() < 28
            assert times == expected.astype(int).tolist()
        for name in names:
            assert found[name][expected].tobytes() == at_the_cut[name][expected].tobytes()
        before = at_the_cut
    training.end()
    training.close()

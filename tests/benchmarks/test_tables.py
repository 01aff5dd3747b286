"""The workloads with tables: what a batch needs, and that the programs compute the same as the trainer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.figures import Figures
from benchmarks.programs.common import Training
from benchmarks.programs.embeddings import MODEL
from benchmarks.results import CPU, SECONDS, SPEED, medians
from benchmarks.results import tables as written
from benchmarks.rows import DENSE, FEW, MANY, ROWS, WORKLOADS
from benchmarks.tables import COUNT, EXAMPLES, FILE, NUMBERS, WIDTH, Tables
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.model.data import batches
from trainer.process import flags

v1 = tf.compat.v1
SMALL = Tables(rows=60, drawn=40, exponent=1.05)
STEPS, IN_A_CALL = 4, 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    SMALL.write(folder)
    return folder


def test_bytes_of_a_batch_are_those_of_its_different_rows_and_their_positions(data: Path) -> None:
    with np.load(data / FILE) as found:
        ids = found["features"][:, NUMBERS:]
    counts = [len(np.unique(ids[begin : begin + 32, 0])) for begin in range(0, 32_000, 32)]
    assert SMALL.different_ids(32) == pytest.approx(np.mean(counts), rel=0.02)
    assert SMALL.bytes_of_a_batch(32) == COUNT * SMALL.different_ids(32) * (2 * 4 * WIDTH + 4)
    assert SMALL.bytes_of_a_batch(1) == pytest.approx(COUNT * (2 * 4 * WIDTH + 4))
    assert SMALL.bytes_of_rows == 2 * COUNT * 60 * WIDTH * 4


def test_more_rows_change_which_are_needed_and_nothing_else(data: Path, tmp_path: Path) -> None:
    replace(SMALL, rows=6_000).write(tmp_path)
    with np.load(data / FILE) as few, np.load(tmp_path / FILE) as many:
        assert (few["labels"] == many["labels"]).all()
        ids = [found["features"][:, NUMBERS:].astype(np.int64) for found in (few, many)]
        for of_few, of_many in zip(ids[0].T, ids[1].T, strict=True):
            pairs = (of_few, of_many, of_few * 6_000 + of_many)
            assert [len(np.unique(its)) for its in pairs] == [40] * 3
        assert ids[1].max() > 5_000
        assert len(few["labels"]) > EXAMPLES


def measured(cpu: float, of_a_ps: float) -> dict[int, Figures]:
    of_others = {"memory_of_a_worker": 600e6 * cpu, "memory_of_the_lead": 700e6}
    return {
        0: {
            SPEED: 1,
            CPU: cpu,
            SECONDS: 1,
            "cpu_milliseconds_per_step": {},
            "memory_of_a_ps": of_a_ps,
            **of_others,
        }
    }


def test_what_more_rows_cost_is_a_multiple_of_what_few_rows_cost() -> None:
    few, many = (workload.tables.bytes_of_rows / 2 for workload in (FEW, MANY) if workload.tables)
    rounds = {"tables_few": {"psfleet": measured(2.0, 500e6)}}
    assert "as a multiple" not in written(medians(rounds))
    rounds["tables_many"] = {"psfleet": measured(2.5, 500e6 + 1.5 * (many - few))}
    lines = written(medians(rounds)).splitlines()
    assert "| psfleet | 1.25 | 1.25 | 1.00 | 1.50 |" in lines
    assert FEW.heading.endswith(", 5,119 rows in a batch, 3 MB of rows and slots")


def test_rows_have_the_ps_of_their_workloads() -> None:
    tables = next(workload for workload in WORKLOADS if workload.name == "tables")
    assert [row.with_ps(tables.ps).ps for row in ROWS if tables.name in row.workloads] == [2] * 5
    named = {row.name: row.with_ps(tables.ps).ps for row in ROWS}
    assert (named["mirrored"], named["psfleet_4_ps"]) == (0, 4)
    assert {name for row in ROWS for name in row.workloads} == {workload.name for workload in WORKLOADS}
    assert [workload.name for workload in WORKLOADS if workload.tables is None] == list(DENSE)


def test_the_trainer_and_tensorflows_own_lookups_have_the_same_losses(data: Path) -> None:
    asked = {"data_dir": data, "batch_size": 32, "model": MODEL.name, "seed": 3, "steps_per_call": IN_A_CALL}
    options = flags.parse(["--job_name=local", *(f"--{name}={value}" for name, value in asked.items())])
    graph = AsynchronousGraph(options.cluster, options.settings, MODEL, MODEL.load(options.settings, 1))
    session = graph.session("")
    session.initialise()
    variables = session.session.run([*graph.model_variables, *graph.tables.variables[0].pieces])
    own = [loss for _ in range(STEPS // IN_A_CALL) for loss in session.session.run(graph.calls[IN_A_CALL])[0]]

    training = Training(options)
    with tf.Graph().as_default():
        dataset, feeds = batches(training.examples, 32, options.settings.seed)
        iterator = v1.data.make_initializable_iterator(dataset)
        dense, tables = training.variables(), training.tables(2)
        loss = training.loss(dense, tables, *iterator.get_next())
        train = training.optimizer().minimize(loss)
        halves = np.concatenate([np.split(table, 2) for table in np.split(variables[-1], COUNT)])
        parts = [part for table in tables for part in table]
        first_values = [
            variable.assign(value)
            for variable, value in zip([*dense, *parts], [*variables[:-1], *halves], strict=True)
        ]
        with v1.Session() as stock:
            stock.run(v1.global_variables_initializer())
            stock.run([first_values, iterator.initializer], feeds)
            losses = [stock.run([loss, train])[0] for _ in range(STEPS)]
    np.testing.assert_allclose(losses, own, rtol=2e-5)
    assert len(set(losses)) == STEPS
    assert sum(value.size for value in variables[:-1]) == FEW.parameters

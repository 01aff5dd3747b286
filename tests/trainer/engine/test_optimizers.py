"""Each packed optimizer on pieces on two ps computes the same as TensorFlow's on whole variables."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.engine.transfers import Tasks
from trainer.contract.model_card import OPTIMIZERS
from trainer.contract.settings import TrainingSettings
from trainer.engine.tables.optimizers import Rates, row_optimizer
from trainer.engine.training import StepResult, TrainingGraph
from trainer.model.data import batches
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext
from trainer.model.pieces import CutVariable, name_of, value_of
from trainer.model.tables.lookup import RowGradients

v1 = tf.compat.v1

STEPS, RATE = 200, 0.01
L1 = 0.001
OF_TENSORFLOW = {
    "sgd": v1.train.GradientDescentOptimizer,
    "momentum": partial(v1.train.MomentumOptimizer, momentum=0.9),
    "adagrad": v1.train.AdagradOptimizer,
    "adam": v1.train.AdamOptimizer,
    "ftrl": partial(v1.train.FtrlOptimizer, l1_regularization_strength=L1),
}
Weights = dict[str, npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(2)


def _values(session: tf.compat.v1.Session, graph: TrainingGraph) -> Weights:
    with graph.graph.as_default():
        values = {name_of(its): value_of(its) for its in graph.variables if its is not graph.counters}
    found: Weights = session.run(values)
    return found


def _of_tensorflow(settings: TrainingSettings, first: Weights) -> tuple[Weights, list[float]]:
    """What minimize() makes of these variables in one process, with the batches of worker 0."""
    model = REGISTRY[settings.model]
    data = model.load(settings, 2)
    context = ModelContext(settings, data, Devices((), ""))
    with tf.Graph().as_default(), v1.Session() as session:
        variables = model.create_variables(context)
        dataset, feeds = batches(data.train, settings.batch_size, settings.seed)
        iterator = v1.data.make_initializable_iterator(dataset)
        loss = model.loss(context, variables, *iterator.get_next())
        step = OF_TENSORFLOW[str(settings.optimizer)](RATE).minimize(loss)
        session.run([v1.global_variables_initializer(), iterator.initializer], feeds)
        session.run([variable.assign(first[variable.op.name]) for variable in variables])
        losses = [session.run([loss, step])[0] for _ in range(STEPS)]
        found: Weights = session.run({its.op.name: its for its in v1.global_variables()})
        return found, losses


@pytest.mark.parametrize(
    ("optimizer", "steps_per_call"),
    few([*((optimizer, 7) for optimizer in OPTIMIZERS), ("adam", 1)], ("adam", 7), ("ftrl", 7)),
)
def test_packed_optimizers_compute_the_same_weights_as_tensorflow(
    tasks: Tasks, optimizer: str, steps_per_call: int
) -> None:
    settings = TrainingSettings(
        model="mnist_mlp",
        optimizer=optimizer,
        learning_rate=RATE,
        steps_per_call=steps_per_call,
        l1_regularization=L1 if optimizer == "ftrl" else 0.0,
    )
    graph, session = tasks.begin(0, settings)
    assert isinstance(graph.model_variables[0], CutVariable)
    session.initialise()
    first = _values(session.session, graph)
    taken: list[StepResult] = []
    while len(taken) < STEPS:
        taken += session.steps(STEPS - len(taken), lambda: None)
    found = _values(session.session, graph)
    session.close()

    expected, losses = _of_tensorflow(settings, first)
    # Steps of one call equal steps of separate calls.
    counted = [(step.global_step_before, step.counters) for step in taken]
    assert counted == [(step, (step + 1, 0, step + 1, 0)) for step in range(STEPS)]
    assert [step.loss for step in taken] == pytest.approx(losses, rel=1e-4)
    # Each ps has its own copy of values that belong to no variable.
    expected |= {f"{name}_1": value for name, value in expected.items() if name.endswith("_power")}
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert np.abs(found["hidden/weights"] - first["hidden/weights"]).max() > 100 * 1e-5


@pytest.mark.parametrize("l1", [0.0, 20.0])
def test_ftrl_of_rows_is_tensorflows_to_the_last_bits(l1: float) -> None:
    generator = np.random.default_rng(5)
    rows, width = 9, 4
    with tf.Graph().as_default(), v1.Session() as session:
        first = generator.normal(size=(rows, width)).astype(np.float32)
        part, whole = (
            v1.get_variable(name, initializer=first, use_resource=True) for name in ("part", "whole")
        )
        values = v1.placeholder(tf.float32, [None, width])
        positions = v1.placeholder(tf.int32, [None])
        row = row_optimizer("ftrl", Rates(0.1, l1), "/device:CPU:0", 0)
        stock = v1.train.FtrlOptimizer(0.1, initial_accumulator_value=1e-6, l1_regularization_strength=l1)
        slices = tf.IndexedSlices(values, positions, [rows, width])
        steps = [
            row.apply([(RowGradients(values, positions), part)]),
            stock.apply_gradients([(slices, whole)]),
        ]
        # The marks of rows are local variables.
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(30):
            needed = generator.permutation(rows - 1)[:5]
            gradients = generator.normal(size=(5, width)).astype(np.float32)
            session.run(steps, {positions: needed, values: gradients})
        found = session.run({its.op.name: its for its in v1.global_variables()})
    for slot in ("", "/Ftrl", "/Ftrl_1"):
        np.testing.assert_allclose(found[f"part{slot}"], found[f"whole{slot}"], rtol=2e-6, atol=1e-6)
    # A row that was never needed has its first value; numbers with a small sum of gradients are 0.
    np.testing.assert_array_equal(found["part"][-1], first[-1])
    assert np.any(found["part"] == 0) == (l1 > 0)
    np.testing.assert_array_equal(found["part"] == 0, found["whole"] == 0)

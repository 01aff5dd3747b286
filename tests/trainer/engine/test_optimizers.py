"""Each optimizer, over packed wires and on two ps, does what TensorFlow's own does to separate variables."""

from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import OPTIMIZERS, TrainingSettings
from trainer.engine.training import TrainingGraph
from trainer.model.data import batches
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext

v1 = tf.compat.v1

STEPS, RATE = 200, 0.01
OF_TENSORFLOW = {
    "sgd": v1.train.GradientDescentOptimizer,
    "momentum": partial(v1.train.MomentumOptimizer, momentum=0.9),
    "adagrad": v1.train.AdagradOptimizer,
    "adam": v1.train.AdamOptimizer,
}
Weights = dict[str, npt.NDArray[np.float32]]


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(2)


def _values(session: tf.compat.v1.Session, graph: TrainingGraph) -> Weights:
    found: Weights = session.run({variable.op.name: variable for variable in graph.saved_parameters})
    return found


def _of_tensorflow(settings: TrainingSettings, first: Weights) -> Weights:
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
        for _ in range(STEPS):
            session.run(step)
        found: Weights = session.run({its.op.name: its for its in v1.global_variables()})
        return found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_weights_are_those_of_tensorflow(tasks: Tasks, optimizer: str) -> None:
    settings = TrainingSettings(model="mnist_mlp", optimizer=optimizer, learning_rate=RATE)
    graph, session = tasks.begin(0, settings)
    session.initialise()
    first = _values(session.session, graph)
    while session.counters()[0] < STEPS:
        session.step(lambda: None)
    found = _values(session.session, graph)
    session.close()

    expected = _of_tensorflow(settings, first)
    # Each ps has its own of what is of no variable.
    expected |= {f"{name}_1": value for name, value in expected.items() if name.endswith("_power")}
    assert set(found) == set(expected)
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert np.abs(found["hidden/weights"] - first["hidden/weights"]).max() > 100 * 1e-5

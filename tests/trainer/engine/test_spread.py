"""A model's variables in pieces on two ps appear whole from outside."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.settings import TrainingSettings
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.checkpoints import Checkpoint, CheckpointFolder, read_checkpoint, tensors_to_save
from trainer.model.fingerprint import fingerprint_of
from trainer.model.models import REGISTRY, linear
from trainer.model.models.model import ModelContext, Values, Variables
from trainer.model.pieces import CutVariable, name_of

v1 = tf.compat.v1

SHAPES = {"fixed": [3], "scope/big": [100, 300], "table": [5000], "biases": [300], "steps": [4000]}


def _first_value(shape: list[int], dtype: tf.DType) -> tf.Tensor:
    """It shows the whole's shape, and that there is one for all pieces."""
    size = math.prod(shape)
    return tf.reshape(tf.range(-size, 0, dtype=dtype), shape)


def _create_variables(context: ModelContext) -> Variables:
    def variable(name: str, dtype: tf.DType = tf.float32) -> tf.Variable:
        return v1.get_variable(name, SHAPES[name], dtype, initializer=_first_value, use_resource=True)

    with tf.device(context.devices.ps_device(1)):
        fixed = variable("fixed")
    others = [variable(name) for name in ("scope/big", "table", "biases")]
    return [fixed, *others, variable("steps", tf.int64)]


def _loss(_context: ModelContext, variables: Values, features: tf.Tensor, _labels: tf.Tensor) -> tf.Tensor:
    return sum(tf.reduce_sum(its**2) * tf.reduce_mean(features**2) for its in variables[:-1])


MODEL = dataclasses.replace(
    REGISTRY["linear"],
    create_variables=_create_variables,
    loss=_loss,
    metrics=lambda context, variables, *batch: {"loss": _loss(context, variables, *batch)},
    outputs=lambda _context, _variables, features: {"y": features},
    watched=lambda variables: {"sum": tf.reduce_sum(variables[1] * 2)},
    travels_alone=lambda its: its.shape.rank == 1 and its.shape[0] == 5000,
)


@pytest.fixture(scope="module")
def begun() -> tuple[TrainingGraph, TrainingSession]:
    tasks = Tasks(2)
    settings = TrainingSettings(optimizer="adam", steps_per_call=1)
    graph = AsynchronousGraph(tasks.cluster(0), settings, MODEL, linear.load(settings, 2))
    session = graph.session(tasks.target(0))
    session.initialise()
    return graph, session


def test_variables_that_are_placed_or_cannot_be_cut_stay_whole(
    begun: tuple[TrainingGraph, TrainingSession],
) -> None:
    graph, _ = begun
    big = graph.model_variables[1]
    assert isinstance(big, CutVariable)
    assert [piece.op.name for piece in big.pieces] == ["scope/big/part_0", "scope/big/part_1"]
    devices = [f"/job:ps/task:{ps}/device:CPU:0" for ps in (0, 1)]
    assert [piece.device for piece in big.pieces] == devices
    whole = [its for its in graph.model_variables if isinstance(its, tf.Variable)]
    assert [its.op.name for its in whole] == ["fixed", "table", "biases", "steps"]
    assert [its.device for its in whole] == [devices[ps] for ps in (1, 1, 1, 0)]
    held = dict.fromkeys(devices, 0)
    for piece in (*whole, *big.pieces):
        held[piece.device] += piece.shape.num_elements() * piece.dtype.size
    assert max(held.values()) <= 1.05 * sum(held.values()) / 2


def test_checkpoints_and_fingerprints_contain_whole_variables(
    begun: tuple[TrainingGraph, TrainingSession], tmp_path: Path
) -> None:
    graph, session = begun
    device = "/job:worker/task:0/device:CPU:0"
    with graph.graph.as_default():
        tensors = tensors_to_save(graph.variables, device)
    folder = CheckpointFolder(tmp_path, keep=1)

    def saved() -> Checkpoint:
        path, written = folder.write(session.session.run(tensors))
        checkpoint, problem = read_checkpoint(path)
        assert checkpoint is not None, problem
        assert written == fingerprint_of(checkpoint.values)
        fingerprint = session.fingerprint()
        assert fingerprint == (fingerprint_of(checkpoint.values), checkpoint.global_step)
        return checkpoint

    before = saved()
    learned = ("fixed", "scope/big", "table", "biases")
    slots = {f"{name}/{slot}": SHAPES[name] for name in learned for slot in ("Adam", "Adam_1")}
    shapes = SHAPES | slots | {"psfleet/counters": [4]}
    shapes |= {f"beta{n}_power{ps}": [] for n in (1, 2) for ps in ("", "_1")}
    assert {name: list(value.shape) for name, value in before.values.items()} == shapes
    assert sorted(name_of(variable) for variable in graph.variables) == sorted(shapes)
    first = np.arange(30_000, dtype=np.float32).reshape(100, 300) - 30_000
    np.testing.assert_array_equal(before.values["scope/big"], first)
    assert session.watched() == {"sum": pytest.approx(2 * first.sum(), rel=1e-5)}

    for _ in range(3):
        session.step(lambda: None)
    after = saved()
    assert after.global_step == 3
    assert not np.any(after.values["scope/big"] == first)
    # Gradients are the values, but for a factor.
    assert np.all(np.diff(after.values["scope/big/Adam"].reshape(-1)) > 0)

    session.restore(before)
    assert session.fingerprint() == (fingerprint_of(before.values), 0)
    session.restore(after)
    assert saved().values["scope/big/Adam"].tobytes() == after.values["scope/big/Adam"].tobytes()

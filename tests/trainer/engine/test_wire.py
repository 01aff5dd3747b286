"""Packing for the network is invisible to the model: values, gradients, types, unpacked variables."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.engine.wire import LARGE, Wire
from trainer.model.pieces import CutVariable

v1 = tf.compat.v1

PS = ("/job:ps/task:0", "/job:ps/task:1")
WORKER = "/job:worker/task:0"


def _variable(name: str, shape: list[int], device: str = PS[0], dtype: tf.DType = tf.float32) -> tf.Variable:
    with tf.device(device):
        zeros = v1.zeros_initializer()
        return v1.get_variable(name, shape, dtype, initializer=zeros, use_resource=True)


def _packed(wire: Wire, variables: list[tf.Variable]) -> list[bool]:
    values = wire.pull()
    assert [value.shape for value in values] == [variable.shape for variable in variables]
    assert [value.dtype.base_dtype for value in values] == [its.dtype.base_dtype for its in variables]
    return [value is not variable for value, variable in zip(values, variables, strict=True)]


def test_only_variables_on_ps_that_do_not_travel_alone_are_packed() -> None:
    with tf.Graph().as_default(), tf.device(WORKER):
        variables = [_variable("a", [2, 3]), _variable("table", [9]), _variable("b", [], PS[1])]
        assert _packed(Wire(variables, lambda its: its.op.name == "table"), variables) == [True, False, True]
        local = [_variable("c", [1], "/job:localhost/task:0"), _variable("d", [2], "")]
        assert _packed(Wire(local, lambda _: False), local) == [False, False]


def test_each_ps_sends_one_tensor_for_each_type() -> None:
    with tf.Graph().as_default() as graph, tf.device(WORKER):
        variables = [
            _variable("a", [2, 3]),
            _variable("b", [4], dtype=tf.float64),
            _variable("c", [5], PS[1]),
            _variable("d", []),
            _variable("e", [2], dtype=tf.float64),
        ]
        assert all(_packed(Wire(variables, lambda _: False), variables))
        sent = [operation.inputs[0] for operation in graph.get_operations() if operation.type == "SplitV"]
    of_ps = [(tf.float32, [7]), (tf.float64, [6]), (tf.float32, [5])]
    assert [(its.dtype, its.shape.as_list()) for its in sent] == of_ps
    assert [its.device for its in sent] == [PS[0], PS[0], PS[1]]


def _loss(values: Sequence[tf.Variable | tf.Tensor]) -> tf.Tensor:
    weights, biases, rows, _unused = values
    found = tf.reduce_sum(tf.linalg.matvec(weights, biases) ** 2)
    return tf.cast(found, tf.float64) + tf.reduce_sum(tf.gather(rows, [2, 0, 2]) ** 3)


@pytest.mark.parametrize(("alone", "dtype"), [("", "float32"), ("rows", "float32"), ("", "bfloat16")])
def test_pushed_gradients_equal_those_of_the_variables(alone: str, dtype: str) -> None:
    draw = np.random.default_rng(1).normal
    with tf.Graph().as_default() as graph, tf.device(WORKER):
        variables = [
            _variable("weights", [3, 2]),
            _variable("biases", [2]),
            _variable("rows", [4, 2], dtype=tf.float64),
            _variable("unused", [3]),
        ]
        first = [its.assign(draw(size=its.shape).astype(its.dtype.as_numpy_dtype)).op for its in variables]
        wire = Wire(variables, lambda its: its.op.name == alone, tf.as_dtype(dtype))
        values = wire.pull()
        assert [value.dtype.base_dtype for value in values] == [its.dtype.base_dtype for its in variables]
        pushed = wire.push(v1.gradients(_loss(values), values))
        expected = v1.gradients(_loss(variables), variables[:3])
    assert [variable.op.name for _, variable in pushed] == ["weights", "biases", "rows"]
    gradients = [gradient for gradient, _ in pushed]
    assert [gradient.device for gradient in gradients[:2]] == [PS[0], PS[0]]
    # If the model reads a table itself, only the rows that it read are sent back.
    assert isinstance(gradients[2], tf.IndexedSlices) == (alone == "rows")
    with graph.as_default():
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        as_expected = [tf.convert_to_tensor(gradient) for gradient in expected]
    with v1.Session(Tasks(1).target(0), graph=graph) as session:
        session.run(first)
        for found, right in zip(*session.run([dense, as_expected]), strict=True):
            is_rounded = dtype == "bfloat16" and right.dtype == np.float32
            np.testing.assert_allclose(found, right, rtol=2e-2 if is_rounded else 1e-6)


@pytest.mark.parametrize("alone", [lambda _: False, lambda its: its.shape.rank == 1])
def test_a_cut_variable_is_pulled_whole_and_pushed_in_pieces(alone: Callable[[tf.Variable], bool]) -> None:
    # The pieces come in their own order, whichever ps comes first.
    with tf.Graph().as_default() as graph, tf.device(WORKER):
        first = _variable("first", [2], PS[1])
        pieces = (_variable("matrix/part_0", [4]), _variable("matrix/part_1", [2], PS[1]))
        cut = CutVariable("matrix", tf.TensorShape([3, 2]), pieces)
        wire = Wire([first, cut], alone)
        values = wire.pull()
        pushed = wire.push(v1.gradients(tf.reduce_sum(tf.linalg.matvec(values[1], values[0]) ** 2), values))
        row = np.array([1, -2, 3, 5, -8, 13], np.float32)
        set_all = [its.assign(part).op for its, part in zip(pieces, (row[:4], row[4:]), strict=True)]
        set_all.append(first.assign([2, -1]).op)
    assert [variable.op.name for _, variable in pushed] == ["first", "matrix/part_0", "matrix/part_1"]
    assert [gradient.device for gradient, _ in pushed[1:]] == list(PS)
    with v1.Session(Tasks(2).target(0), graph=graph) as session:
        session.run(set_all)
        found, (_, *gradients) = session.run([values[1], [gradient for gradient, _ in pushed]])
    matrix, vector = row.reshape(3, 2), np.array([2, -1])
    np.testing.assert_array_equal(found, matrix)
    expected = np.outer(2 * matrix @ vector, vector).reshape(-1)
    np.testing.assert_allclose(np.concatenate(gradients), expected, rtol=1e-6)


def test_a_large_variable_is_not_packed_with_others() -> None:
    with tf.Graph().as_default() as graph, tf.device(WORKER):
        sizes = [5, LARGE // 4, 6, LARGE // 4 - 1]
        variables = [_variable(f"v{place}", [size]) for place, size in enumerate(sizes)]
        assert all(_packed(Wire(variables, lambda _: False), variables))
        sent = [operation.inputs[0] for operation in graph.get_operations() if operation.type == "SplitV"]
    assert [its.shape.as_list() for its in sent] == [[5 + 6 + LARGE // 4 - 1], [LARGE // 4]]

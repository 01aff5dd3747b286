"""The fingerprint of a model is the same from its values and from its ps, and depends on every bit."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.trainer.ports import free_ports
from trainer.coordination.ledger_parts import COUNTERS, create_counters
from trainer.model.fingerprint import BLOCK, FingerprintOperations, fingerprint_of, fingerprints_of_ps
from trainer.model.pieces import CutVariable
from trainer.process.cluster import Cluster

v1 = tf.compat.v1

Value = npt.NDArray[np.generic]
_TYPES = (
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
STEP = 7


def _values() -> dict[str, Value]:
    generator = np.random.default_rng(1)
    # Any bits at all: among them numbers that are not finite.
    values: dict[str, Value] = {
        name: generator.integers(0, 256, (3, 4 * np.dtype(name).itemsize), np.uint8).view(name)
        for name in _TYPES
    }
    return values | {
        "bfloat16": generator.standard_normal((5, 6)).astype(tf.bfloat16.as_numpy_dtype),
        "bool": generator.integers(0, 2, 9).astype(np.bool_),
        "scalar": np.asarray(-0.0, np.float32),
        "empty": np.zeros((0, 3), np.float32),
        "one_block": generator.standard_normal(BLOCK).astype(np.float32),
        "blocks": generator.standard_normal((3, BLOCK + 17)).astype(np.float32),
    }


class _OnPs:
    """The values as variables on two ps of this process, by turns, and a worker that reads them."""

    def __init__(self, values: dict[str, Value]) -> None:
        first, second, worker = [f"127.0.0.1:{port}" for port in free_ports(3)]
        cluster = Cluster("worker", 0, (first, second), (worker,))
        places = (("ps", 0), ("ps", 1), ("worker", 0))
        self.servers = [
            v1.train.Server(tf.train.ClusterSpec(cluster.jobs), job_name=job, task_index=index)
            for job, index in places
        ]
        with tf.Graph().as_default() as graph:
            counters = create_counters(cluster)
            self.count = counters.assign_add([1, 0, 1])
            with v1.device(v1.train.replica_device_setter(ps_tasks=2, worker_device=cluster.device)):
                feeds = {name: v1.placeholder(value.dtype, value.shape) for name, value in values.items()}
                variables = [
                    v1.get_variable(name, initializer=feed, use_resource=True) for name, feed in feeds.items()
                ]
            self.operations = FingerprintOperations([counters, *variables], counters)
            self.session = v1.Session(self.servers[-1].target, graph=graph)
            self.session.run(counters.initializer)
            for _ in range(STEP):
                self.session.run(self.count)
            initializers = [variable.initializer for variable in variables]
            self.session.run(initializers, {feeds[name]: value for name, value in values.items()})


@pytest.fixture(scope="module")
def on_ps() -> Iterator[_OnPs]:
    made = _OnPs(_values())
    yield made
    made.session.close()


def test_the_ps_and_a_checkpoint_with_these_values_agree(on_ps: _OnPs) -> None:
    expected = fingerprint_of({**_values(), COUNTERS: np.array([STEP, 0, STEP])})
    assert on_ps.operations.run(on_ps.session) == (expected, STEP)


def test_only_sums_are_sent_from_the_ps(on_ps: _OnPs) -> None:
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    on_ps.session.run(on_ps.operations.fetches, options=options, run_metadata=metadata)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    read = {node.name: node.device for node in nodes if node.op == "ReadVariableOp"}
    assert len(set(read.values())) == 2
    assert {node.device for node in nodes if node.op == "Sum"} == set(read.values())
    sent = {node.input[0].partition(":")[0] for node in nodes if node.op == "_Send"}
    assert sent
    assert not sent & set(read)


def test_no_fingerprint_is_returned_if_a_step_happens_during_the_reading(on_ps: _OnPs) -> None:
    class Stepping:
        """The session, with a step between the first read and the last."""

        def run(self, fetches: list[tf.Tensor]) -> list[int]:
            before: int = on_ps.session.run(fetches[0])
            on_ps.session.run(on_ps.count)
            return [before, *on_ps.session.run(fetches[1:])]

    assert on_ps.operations.run(Stepping()) is None


@pytest.mark.parametrize("name", ["blocks", "float16", "float64"])
def test_pieces_have_the_sum_of_the_whole(name: str) -> None:
    value = _values()[name]
    row = value.reshape(-1)
    # Wherever a piece begins and ends in a block, also longer than one, and without any number.
    limits = {"blocks": [0, 1, BLOCK - 1, BLOCK, BLOCK, 2 * BLOCK + 5, 2 * BLOCK + 9, len(row)]}.get(
        name, [0, 5, len(row)]
    )
    with tf.Graph().as_default(), v1.device("/job:localhost/task:0"), v1.Session() as session:
        counters = v1.get_variable("psfleet/counters", initializer=np.array([STEP, 0]), use_resource=True)
        pieces = tuple(
            v1.get_variable(f"{name}/part_{number}", initializer=row[begin:end], use_resource=True)
            for number, (begin, end) in enumerate(pairwise(limits))
        )
        cut = CutVariable(name, tf.TensorShape(value.shape), pieces)
        other = v1.get_variable("other", initializer=np.float32(2), use_resource=True)
        operations = FingerprintOperations([counters, cut, other], counters)
        session.run(v1.global_variables_initializer())
        found = operations.run(session)
        of_ps = operations.run_ps(session, ["localhost0"])
    values = {name: value, "other": np.asarray(2, np.float32)}
    assert found == (fingerprint_of(values), STEP)
    assert of_ps == fingerprints_of_ps([counters, cut, other], values, {})
    value.reshape(-1)[-1] += 1
    assert of_ps.keys() == {"localhost0"}
    assert of_ps != fingerprints_of_ps([counters, cut, other], values, {})


def _swap(first: int, second: int) -> Callable[[dict[str, Value]], None]:
    def change(values: dict[str, Value]) -> None:
        blocks = values["blocks"].reshape(-1)
        blocks[[first, second]] = blocks[[second, first]]

    return change


CHANGES: dict[str, Callable[[dict[str, Value]], None]] = {
    "swap": _swap(3, 4),
    "swap blocks": _swap(5, 5 + BLOCK),
    "flip the last bit": lambda values: np.bitwise_xor.at(
        values["blocks"].reshape(-1).view(np.uint32), -1, np.uint32(1)
    ),
    "lose a sign": lambda values: values.update(scalar=np.asarray(0.0, np.float32)),
    "rename": lambda values: values.update(other=values.pop("bool")),
    "reshape": lambda values: values.update(bool=values["bool"].reshape(3, 3)),
    "retype": lambda values: values.update(int32=values["int32"].view(np.uint32)),
    "add": lambda values: values.update(another=np.zeros(0, np.float32)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_fingerprint_depends_on_each_bit_place_and_name(
    change: Callable[[dict[str, Value]], None],
) -> None:
    values = _values()
    before = fingerprint_of(values)
    change(values)
    assert fingerprint_of(values) != before


def test_the_fingerprint_of_given_values_is_the_same_in_every_release() -> None:
    values: dict[str, Value] = {"weight": np.asarray(2.0, np.float32), "bias": np.asarray([10.0, -0.5])}
    assert fingerprint_of(values) == fingerprint_of(dict(reversed(values.items()))) == "b8994fcf4bd10850"


def test_a_string_variable_is_refused_a_fingerprint() -> None:
    with pytest.raises(ValueError, match=r"^variable words holds string: a fingerprint is of numbers only$"):
        fingerprint_of({"words": np.asarray(["a"], np.object_)})

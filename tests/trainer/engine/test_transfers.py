"""How many tensors travel in a step, from the graphs that TensorFlow executed; each of them is a call."""

from collections import Counter
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks, transfers_of, typed_transfers_of
from trainer.contract.settings import TrainingSettings
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.synchronous import SynchronousGraph
from trainer.engine.training import TrainingGraph, TrainingSession, sizes_of_calls

tasks_with = cache(Tasks)


def begun(ps: int, settings: TrainingSettings) -> tuple[TrainingGraph, TrainingSession]:
    """Return the graph of worker 0 and a session in which a step waits for no other worker."""
    graph, session = tasks_with(ps).begin(0, settings)
    session.initialise()
    if isinstance(graph, SynchronousGraph):
        session.session.run(graph.rounds.ring_own)
    return graph, session


# Four variables, the largest in a piece on each ps: each is pulled from once, and pushed to once.
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    ("replication", "ps", "expected"),
    [
        # The counts come in one tensor; with 2 ps the one says that it has applied its gradients.
        ("async", 1, {("ps0", "worker0"): 1 + 1, ("worker0", "ps0"): 1}),
        (
            "async",
            2,
            {
                ("ps0", "worker0"): 1 + 1,
                ("ps1", "worker0"): 1,
                ("worker0", "ps0"): 1,
                ("worker0", "ps1"): 1,
                ("ps1", "ps0"): 1,
            },
        ),
        # With 2 ps the other one must hear of the round, of the admission and of who completes the round, and
        # says what it has received, added and applied.
        ("sync", 1, {("ps0", "worker0"): 1 + 1, ("worker0", "ps0"): 1}),
        (
            "sync",
            2,
            {
                ("ps0", "worker0"): 1 + 1,
                ("ps1", "worker0"): 1,
                ("worker0", "ps0"): 1,
                ("worker0", "ps1"): 1,
                ("ps0", "ps1"): 3,
                ("ps1", "ps0"): 3,
            },
        ),
        # The client sums the examples of both for the mean, and sends the step to the other worker.
        (
            "in_graph",
            1,
            {
                ("ps0", "worker0"): 1 + 1,
                ("ps0", "worker1"): 1 + 2,
                ("worker1", "worker0"): 2,
                ("worker0", "ps0"): 1 + 1,
                ("worker1", "ps0"): 1,
            },
        ),
    ],
)
def test_a_step_transfers_only_the_necessary_tensors(
    replication: str, ps: int, optimizer: str, expected: dict[tuple[str, str], int]
) -> None:
    settings = TrainingSettings(replication=replication, optimizer=optimizer, steps_per_call=1)
    graph, session = begun(ps, settings)
    assert transfers_of(session.session, graph.step) == expected
    session.close()


def test_a_large_piece_travels_as_a_tensor_of_its_own() -> None:
    """Ps0 holds 1.5 of the 2.6 MB of weights; ps1 holds the rest and three small variables."""
    graph, session = tasks_with(2).begin(0, TrainingSettings(hidden_units=10_000, steps_per_call=1))
    session.initialise()
    assert transfers_of(session.session, graph.step) == {
        ("ps0", "worker0"): 1 + 1,
        ("ps1", "worker0"): 2,
        ("worker0", "ps0"): 1,
        ("worker0", "ps1"): 2,
        ("ps1", "ps0"): 1,
    }
    session.close()


@pytest.mark.parametrize(
    ("most", "of_a_pull", "sizes"),
    [
        (1, 1, [1]),
        (4, 1, [1, 4]),
        (10, 1, [1, 3, 10]),
        (32, 1, [1, 4, 11, 32]),
        (6, 6, [1, 2, 6]),
        (30, 5, [1, 2, 5, 10, 30]),
    ],
)
def test_a_call_takes_the_most_steps_or_about_a_third_of_a_larger_one(
    most: int, of_a_pull: int, sizes: list[int]
) -> None:
    assert sizes_of_calls(most, of_a_pull) == sizes


@pytest.mark.parametrize("pull_ahead", [False, True])
@pytest.mark.parametrize(
    ("ps", "expected"),
    [
        (1, {("ps0", "worker0"): 5 + 1, ("worker0", "ps0"): 5}),
        # The other ps hears of each count but the last before it is read from.
        (
            2,
            {
                ("ps0", "worker0"): 5 + 1,
                ("ps1", "worker0"): 5,
                ("worker0", "ps0"): 5,
                ("worker0", "ps1"): 5,
                ("ps1", "ps0"): 5,
                ("ps0", "ps1"): 5 - 1,
            },
        ),
    ],
)
def test_the_counts_of_all_steps_of_a_call_travel_in_one_tensor(
    ps: int, pull_ahead: bool, expected: dict[tuple[str, str], int]
) -> None:
    graph, session = tasks_with(ps).begin(0, TrainingSettings(steps_per_call=5, pull_ahead=pull_ahead))
    assert isinstance(graph, AsynchronousGraph)
    assert set(graph.calls) == {2, 5}
    session.initialise()
    assert transfers_of(session.session, graph.calls[5]) == expected
    session.close()


@pytest.mark.parametrize(("replication", "workers"), [("async", 1), ("sync", 1), ("in_graph", 2)])
def test_only_parameters_and_gradients_travel_in_the_wire_dtype(replication: str, workers: int) -> None:
    def travelling(dtype: str) -> Counter[tuple[str, str, tf.DType]]:
        settings = TrainingSettings(replication=replication, wire_dtype=dtype, steps_per_call=1)
        graph, session = begun(1, settings)
        found = typed_transfers_of(session.session, graph.step)
        session.close()
        return found

    ways = [
        way for worker in range(workers) for way in (("ps0", f"worker{worker}"), (f"worker{worker}", "ps0"))
    ]
    usual, small = travelling("float32"), travelling("bfloat16")
    assert usual - small == {(*way, tf.float32): 1 for way in ways}
    assert small - usual == {(*way, tf.bfloat16): 1 for way in ways}


@pytest.mark.chaos
def test_a_model_learns_equally_well_with_bfloat16_on_the_wire() -> None:
    def trained(dtype: str) -> tuple[dict[str, float], npt.NDArray[np.float32]]:
        graph, session = tasks_with(1).begin(0, TrainingSettings(wire_dtype=dtype))
        session.initialise()
        taken = 0
        while taken < 300:
            taken += len(session.steps(300 - taken, lambda: None))
        metrics = session.evaluate(graph.data.test)
        weights = session.session.run(graph.model_variables[0])
        session.close()
        return metrics, weights

    (usual, _), (small, weights) = trained("float32"), trained("bfloat16")
    assert usual["accuracy"] > 0.9
    assert small == pytest.approx(usual, abs=0.01)
    # The weights on the ps keep the digits that are not sent.
    assert (weights != weights.astype(tf.bfloat16.as_numpy_dtype)).mean() > 0.9

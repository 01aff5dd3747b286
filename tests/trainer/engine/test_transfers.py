"""How many tensors travel in a step, from the graphs that TensorFlow executed; each of them is a call."""

from functools import cache

import pytest

from tests.trainer.engine.transfers import Tasks, transfers_of
from trainer.contract.settings import TrainingSettings

tasks_with = cache(Tasks)


# Four variables, each pulled and its gradient pushed.
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    ("replication", "ps", "expected"),
    [
        # The counts come in one tensor; with 2 ps the one says that it has applied its gradients.
        ("async", 1, {("ps0", "worker0"): 4 + 1, ("worker0", "ps0"): 4}),
        (
            "async",
            2,
            {
                ("ps0", "worker0"): 2 + 1,
                ("ps1", "worker0"): 2,
                ("worker0", "ps0"): 2,
                ("worker0", "ps1"): 2,
                ("ps1", "ps0"): 1,
            },
        ),
        # A round is read before the variables are, and whether all is delivered after the gradients.
        ("sync", 1, {("ps0", "worker0"): 4 + 2, ("worker0", "ps0"): 4}),
        (
            "sync",
            2,
            {
                ("ps0", "worker0"): 2 + 2,
                ("ps1", "worker0"): 2,
                ("worker0", "ps0"): 2,
                ("worker0", "ps1"): 2,
                ("ps0", "ps1"): 2,
                ("ps1", "ps0"): 2,
            },
        ),
    ],
)
def test_no_more_travels_in_a_step_than_must(
    replication: str, ps: int, optimizer: str, expected: dict[tuple[str, str], int]
) -> None:
    settings = TrainingSettings(replication=replication, optimizer=optimizer)
    graph, session = tasks_with(ps).begin(0, settings)
    session.initialise()
    assert transfers_of(session.session, graph.step) == expected
    session.close()

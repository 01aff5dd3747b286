"""The rounds of synchronous training: several in a call, held ones, and ones in which a worker stopped."""

from collections.abc import Iterator
from threading import Thread
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

from tests.trainer.engine.transfers import Tasks
from tests.trainer.processes import until
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import call_within
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP
from trainer.engine import round_keeper
from trainer.engine.synchronous import SynchronousGraph, SynchronousSession
from trainer.engine.synchronous_rounds import CLOSED, RoundOperations, Standing
from trainer.engine.training import StepResult
from trainer.process.failure import StopRequested

SECONDS = 120.0
LAST = 20


class _Rounds:
    """Two workers in this process, which train the line on two ps; a step is of `replicas` gradients."""

    def __init__(self, replicas: int, steps_per_call: int = 1) -> None:
        tasks = Tasks(ps=2)
        settings = TrainingSettings(
            model="linear",
            replication="sync",
            batch_size=5,
            replicas_to_aggregate=replicas,
            steps_per_call=steps_per_call,
        )
        begun = [tasks.begin(worker, settings) for worker in (0, 1)]
        self.graphs = [cast(SynchronousGraph, graph) for graph, _ in begun]
        self.sessions = [cast(SynchronousSession, session) for _, session in begun]
        self.sessions[0].initialise()
        for session in self.sessions:
            session.last_step = LAST
            session.begin()

    def standing(self) -> Standing:
        return Standing.from_values(self.sessions[1].session.run(self.graphs[1].rounds.standing))

    def weights(self) -> npt.NDArray[np.float32]:
        return np.array(self.sessions[1].session.run(self.graphs[1].model_variables))

    def complete(self, round_: int) -> None:
        """Complete a round once more, as the chief does for a worker that stopped."""
        operations = self.graphs[0].rounds
        self.sessions[0].session.run(operations.complete, {operations.round: round_})

    def end(self) -> None:
        for session in self.sessions:
            session.end()
            session.close()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Iterator[_Rounds]:
    made = _Rounds(*request.param)
    yield made
    made.end()


def _of(replicas: int, steps_per_call: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rounds", [(replicas, steps_per_call)], indirect=True)


def _never_told_to_stop() -> None:
    pass


def _until_the_end(session: SynchronousSession, taken: list[StepResult]) -> None:
    """Take eight steps in each call."""
    while not taken or taken[-1].counters[GLOBAL_STEP] < LAST:
        taken += call_within(SECONDS, lambda: session.steps(8, _never_told_to_stop))


@_of(2, 8)
def test_a_call_of_several_steps_takes_part_in_as_many_rounds_and_none_follows_the_last(
    rounds: _Rounds,
) -> None:
    taken: list[list[StepResult]] = [[], []]
    threads = [
        Thread(target=_until_the_end, args=pair, daemon=True)
        for pair in zip(rounds.sessions, taken, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert rounds.standing().counters == (LAST, 0, LAST, LAST)
    assert rounds.standing().round == CLOSED
    for of_worker in taken:
        before = [step.global_step_before for step in of_worker]
        # After the last step there may be one offer, which was dropped.
        assert before[:LAST] == list(range(LAST))
        assert before[LAST:] in ([], [LAST])
        assert [step.counters[GLOBAL_STEP] for step in of_worker[: LAST - 1]] == before[1:LAST]


@_of(2, 8)
def test_a_call_whose_rounds_do_not_end_is_one_step_and_ends_soon(rounds: _Rounds) -> None:
    def told_to_stop() -> None:
        if rounds.standing().contributors:
            raise StopRequested("worker0 was told to stop")

    chief, other = rounds.sessions
    (only,) = call_within(SECONDS, lambda: chief.steps(8, told_to_stop))
    assert (only.global_step_before, only.counters[GLOBAL_STEP]) == (0, 0)
    assert rounds.standing().contributors == (0,)

    (step,) = call_within(SECONDS, lambda: other.steps(1, _never_told_to_stop))
    assert step.counters == (1, 0, 1, 1)


@_of(1, 1)
def test_while_rounds_are_held_none_is_completed_and_afterwards_the_chief_completes_it(
    rounds: _Rounds,
) -> None:
    chief, other = rounds.sessions
    with chief.updates_paused():
        weights = rounds.weights()
        offer = Thread(target=other.steps, args=[1, _never_told_to_stop], daemon=True)
        offer.start()
        until(lambda: rounds.standing().contributors == (1,), "the gradients of worker1")
        assert rounds.standing().counters[GLOBAL_STEP] == 0
        assert (rounds.weights() == weights).all()
    until(lambda: rounds.standing().counters == (1, 0, 0, 1), "the step")
    offer.join(SECONDS)
    assert (rounds.weights() != weights).all()


def test_a_round_whose_last_worker_stopped_is_completed_by_the_chief_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivery = RoundOperations._delivery
    monkeypatch.setattr(RoundOperations, "_delivery", lambda *taken: 0 * delivery(*taken) - 1)
    monkeypatch.setattr(round_keeper, "_SECONDS_TO_DELIVER", 0.2)
    rounds = _Rounds(2)
    first = rounds.standing().round
    weights = rounds.weights()
    chief, other = rounds.sessions
    offer = Thread(target=other.steps, args=[1, _never_told_to_stop], daemon=True)
    offer.start()
    (step,) = call_within(SECONDS, lambda: chief.steps(1, _never_told_to_stop))
    offer.join(SECONDS)

    assert step.counters == (1, 0, 1, 1)
    after = rounds.weights()
    assert (after != weights).all()
    rounds.complete(first)  # as if the worker were only slow
    assert (rounds.weights() == after).all()
    assert rounds.standing().counters == (1, 0, 1, 1)
    rounds.end()


@_of(2, 1)
def test_what_a_worker_offers_again_to_its_round_is_refused(rounds: _Rounds) -> None:
    other = rounds.sessions[1]
    offer = rounds.graphs[1].step
    ring = rounds.graphs[1].rounds.ring_own
    for _ in range(3):
        other.session.run(ring)
        other.session.run(offer)
    standing = rounds.standing()
    assert standing.contributors == (1,)
    assert standing.counters[FIRST_WORKER:] == (0, 0)
    counts = rounds.sessions[0].session.run(rounds.graphs[0].rounds.counts)
    assert set(counts) == {1}

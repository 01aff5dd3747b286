"""A bell wakes the workers that wait for a synchronous round, without vain polls or missed rounds."""

import time
from collections.abc import Iterator
from threading import Event, Thread
from threading import enumerate as threads
from typing import cast

import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from tests.trainer.processes import until
from trainer.contract.exit_codes import DIVERGED
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import call_within
from trainer.coordination.ledger_parts import GLOBAL_STEP, STOP_CODE, AttendancePart
from trainer.engine import bells
from trainer.engine.bells import Waker, create_bell
from trainer.engine.synchronous import SynchronousGraph, SynchronousSession
from trainer.engine.synchronous_rounds import CLOSED, Standing
from trainer.engine.training import StepResult
from trainer.process.failure import RunEnding, StopRequested

v1 = tf.compat.v1

ROUNDS = 20
PAUSE = 0.05
SECONDS = 60.0
NEVER = 3600.0
ENDLESS = 1_000_000


class _Run:
    """A ps and two workers in this process; a step is of `replicas` gradients."""

    def __init__(self, replicas: int, last_step: int) -> None:
        self._settings = TrainingSettings(
            model="linear", replication="sync", batch_size=5, replicas_to_aggregate=replicas, steps_per_call=2
        )
        self._tasks = Tasks(ps=1)
        self._last_step = last_step
        self.graphs: list[SynchronousGraph] = []
        self.sessions = [self.session(worker) for worker in (0, 1)]
        self.sessions[0].initialise()

    def session(self, worker: int) -> SynchronousSession:
        graph, session = self._tasks.begin(worker, self._settings)
        session.last_step = self._last_step
        self.graphs.append(cast(SynchronousGraph, graph))
        return cast(SynchronousSession, session)

    def standing(self) -> Standing:
        return Standing.from_values(self.sessions[1].session.run(self.graphs[1].rounds.standing))

    def run(self, graph: tf.Graph, fetch: object, feeds: dict[tf.Tensor, object] | None = None) -> object:
        with v1.Session(self._tasks.target(1), graph=graph) as session:
            return session.run(fetch, feeds)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[_Run]:
    run = _Run(*request.param)
    yield run
    for session in run.sessions:
        session.end()
        session.close()
    until(lambda: not any(thread.name == "waker" for thread in threads()), "the end of what wakes", 10)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a bell was waited for, by all together."""
    found: list[float] = []
    watch = Waker.watch

    def counted(waker: Waker, wait: object, waits: int = 1) -> object:
        found.append(time.monotonic())
        return watch(waker, wait, waits)  # type: ignore[arg-type]

    monkeypatch.setattr(Waker, "watch", counted)
    return found


def _never_told_to_stop() -> None:
    pass


def _take(session: SynchronousSession) -> StepResult:
    return call_within(SECONDS, lambda: session.step(_never_told_to_stop))


@pytest.mark.parametrize("run", [(2, ROUNDS)], indirect=True)
def test_workers_woken_by_bells_alone_complete_all_rounds_without_vain_polls(
    run: _Run, looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bells, "_LONGEST_WAIT", NEVER)
    fast, slow = run.sessions

    def step_slowly() -> None:
        for _ in range(ROUNDS):
            until(lambda: run.standing().contributors == (0,), "the gradient of the fast one")
            time.sleep(PAUSE)
            _take(slow)

    fast.begin()
    slow.begin()
    Thread(target=step_slowly, daemon=True).start()
    waited = [_take(fast).waiting_seconds or 0.0 for _ in range(ROUNDS)]

    assert min(waited) > 0.95 * PAUSE, waited
    # The steps of both, and a look where a bell was rung twice.
    assert len(looks) <= 3 * ROUNDS
    assert run.standing().counters == (ROUNDS, 0, ROUNDS, ROUNDS)


@pytest.mark.chaos
@pytest.mark.parametrize("run", [(2, ENDLESS)], indirect=True)
def test_a_waiting_worker_sees_a_stop_code_without_a_bell_and_polls_seldom(
    run: _Run, looks: list[float]
) -> None:
    chief, _ = run.sessions
    with tf.Graph().as_default() as graph:
        attendance = AttendancePart(run.graphs[0].cluster)
    done = Event()

    def stop_late() -> None:
        until(lambda: run.standing().contributors == (0,), "the gradient of the chief")
        time.sleep(1)
        run.run(graph, attendance.set_stop_code, {attendance.value: DIVERGED})
        done.set()

    began = time.monotonic()
    chief.begin()
    Thread(target=stop_late, daemon=True).start()
    step = _take(chief)

    assert done.wait(SECONDS)
    assert step.counters[STOP_CODE] == DIVERGED
    assert len(looks) <= (time.monotonic() - began) / 0.25 + 3
    with pytest.raises(RunEnding):
        _take(chief)


@pytest.mark.chaos
@pytest.mark.parametrize("run", [(2, ENDLESS)], indirect=True)
def test_a_worker_that_waits_without_a_chief_polls_its_stop_request(run: _Run) -> None:
    asked: list[float] = []

    def raise_if_stopping() -> None:
        asked.append(time.monotonic())
        if len(asked) == 5:
            raise StopRequested("worker1 was told to stop")

    _, worker = run.sessions
    worker.begin()
    with pytest.raises(StopRequested):
        call_within(SECONDS, lambda: worker.step(raise_if_stopping))
    assert run.standing().round == CLOSED


@pytest.mark.parametrize("run", [(2, 2)], indirect=True)
def test_a_wait_that_a_dead_process_left_on_the_ps_does_not_block_its_successor(run: _Run) -> None:
    chief, worker = run.sessions
    left = run.session(1)
    wait_of_gone = Thread(target=left.session.run, args=[run.graphs[2].rounds.wait], daemon=True)
    chief.begin()
    worker.begin()
    taken: list[StepResult] = []
    for step in (1, 2):
        other = Thread(target=lambda: taken.append(_take(worker)), daemon=True)
        other.start()
        _take(chief)
        other.join()
        assert [result.counters[GLOBAL_STEP] for result in taken] == [1, 2][:step]
        if step == 1:
            wait_of_gone.start()
            time.sleep(1)  # so that it is the first to wait on the ps
    assert not wait_of_gone.is_alive()
    left.close()


@pytest.mark.parametrize("run", [(1, ROUNDS)], indirect=True)
def test_the_bell_of_a_lost_worker_holds_at_most_one_ring(run: _Run) -> None:
    chief, _ = run.sessions
    chief.begin()
    for _ in range(ROUNDS):
        _take(chief)
    with tf.Graph().as_default() as graph, tf.device(run.graphs[0].counters.device):
        size = create_bell("worker1").size()
    assert run.run(graph, size) == 1

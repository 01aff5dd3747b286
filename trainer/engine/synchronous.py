"""Synchronous training: a global step applies the mean of `replicas_to_aggregate` workers' gradients.

Each worker offers the gradients of one batch, and waits until the chief's aggregator has made a global step
of those that came first. Workers beyond `replicas_to_aggregate` are backups: gradients that come too late
are dropped.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress

import numpy as np

from trainer.coordination.ledger_parts import GLOBAL_STEP, STOP_CODE
from trainer.engine.aggregator import Aggregator
from trainer.engine.bells import Waker
from trainer.engine.optimizers import Gradients
from trainer.engine.synchronous_rounds import CLOSED, RoundOperations, Standing
from trainer.engine.training import StepResult, TrainingGraph, TrainingSession
from trainer.process.failure import RunEnding, StopRequested


class SynchronousGraph(TrainingGraph):
    """A graph whose steps offer this worker's gradients; the chief uses it to make global steps, too."""

    def build_step(self) -> None:
        """Add the operations that offer gradients, and those of the chief."""
        workers = self.cluster.workers
        replicas = self.settings.replicas_to_aggregate or workers
        self.rounds = RoundOperations(workers, self.cluster.index, replicas, self.counters)
        batch = self.next_batch(self.cluster.index, self.settings.batch_size)
        loss, gradients = self.learn(self.context, batch, after=[self.rounds.standing])
        self.rounds.build(loss, gradients, self.optimizers)
        self.step = self.rounds.offer

    def applied_gradients(self) -> Sequence[Gradients]:
        """Return the gradients that this worker offers, as they go into the mean."""
        return [self.rounds.offered]

    def session(self, target: str) -> "SynchronousSession":
        """Return a session to the ps and this worker."""
        return SynchronousSession(self, target)


class SynchronousSession(TrainingSession):
    """A session that offers gradients once a round and waits in between; the chief's runs the aggregator."""

    def __init__(self, graph: SynchronousGraph, target: str) -> None:
        super().__init__(graph, target)
        self._rounds, self._is_chief = graph.rounds, graph.cluster.is_chief
        self._wait = self.session.make_callable(graph.rounds.wait)
        self._waker = Waker(self.session.make_callable(graph.rounds.ring_own))
        self._aggregator: Aggregator | None = None
        self._offered = CLOSED
        self._standing: Standing | None = None

    def initialise(self) -> None:
        """Give every variable its initial value; no round is open until the aggregator begins."""
        self.session.run(self._rounds.initializer)
        super().initialise()

    def begin(self) -> None:
        """Start the thread that wakes this worker and, on the chief, the aggregator."""
        self._waker.start()
        if self._is_chief:
            self._aggregator = Aggregator(self.session, self._rounds, self.last_step)
            self._aggregator.start()

    def end(self) -> None:
        """Stop both threads; the aggregator stops between two global steps."""
        if self._aggregator is not None:
            self._aggregator.stop()
        self._aggregator = None
        self._waker.stop()

    def updates_paused(self) -> AbstractContextManager[object]:
        """Return a context in which the aggregator begins no global step."""
        return super().updates_paused() if self._aggregator is None else self._aggregator.between_steps

    def step(self, raise_if_stopping: Callable[[], None]) -> StepResult:
        """Offer one batch's gradients, wait for the end of the round, and return the result.

        Raises RunEnding, and what `raise_if_stopping` raises, but only before the offer. An offer counts as a
        training step of this worker, even if it is dropped.
        """
        began = time.monotonic()
        standing = self._wait_beyond(self._offered, self._standing, raise_if_stopping)
        if standing.counters[STOP_CODE]:
            raise RunEnding(standing.counters[STOP_CODE], "")
        offered = time.monotonic()
        loss, numbers = self._waker.watch(self._step)
        # The last number is measured by the clock of ps 0, which may have been set meanwhile.
        seconds_of_call = time.monotonic() - offered
        seconds_of_offer = seconds_of_call - min(max(float(numbers[-1]) / 1e6, 0.0), seconds_of_call)
        before, standing = map(Standing.from_values, np.split(numbers[:-1], 2))
        self._offered = before.round
        if math.isfinite(loss):
            # A stop request is raised again before the next step.
            with suppress(StopRequested):
                standing = self._wait_beyond(self._offered, standing, raise_if_stopping)
        self._standing = standing
        waited = time.monotonic() - began - seconds_of_offer
        return StepResult(float(loss), before.counters[GLOBAL_STEP], standing.counters, waited)

    def _wait_beyond(
        self, round_: int, standing: Standing | None, raise_if_stopping: Callable[[], None]
    ) -> Standing:
        """Wait for a later round than `round_`, a stop code, or the last step; return the standing then."""
        while True:
            if standing is not None:
                others = tuple(worker for worker in standing.awaited if worker != self._rounds.worker)
                # Once enough gradients are there, the round waits for the chief alone.
                self.awaited = (0,) if len(standing.contributors) >= self._rounds.replicas else others
                if standing.round > round_:
                    return standing
                if standing.counters[STOP_CODE] or standing.counters[GLOBAL_STEP] >= self.last_step:
                    return standing
            if self._aggregator is not None:
                self._aggregator.raise_if_failed()
            # If a call of the aggregator hangs, this thread must not satisfy the watchdog either.
            if self._aggregator is None or not self._aggregator.hangs:
                raise_if_stopping()
            standing = Standing.from_values(self._waker.watch(self._wait))

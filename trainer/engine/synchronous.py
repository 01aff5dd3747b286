"""Synchronous training: a global step applies the mean of `replicas_to_aggregate` workers' gradients.

Each worker offers one gradient, a mean over its batch, and waits until the chief's aggregator has made a step
of those that came first. Workers beyond `replicas_to_aggregate` are backups: what comes too late is dropped.
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
    """A step offers this worker's gradients; the chief's graph also has what makes a global step of them."""

    def build_step(self) -> None:
        """Add the offer, and the chief's operations."""
        workers = self.cluster.workers
        replicas = self.settings.replicas_to_aggregate or workers
        self.rounds = RoundOperations(workers, self.cluster.index, replicas, self.counters)
        batch = self.next_batch(self.cluster.index, self.settings.batch_size)
        loss, gradients = self.learn(self.context, batch, after=[self.rounds.standing])
        self.rounds.build(loss, gradients, self.optimizers)
        self.step = self.rounds.offer

    def given(self) -> Sequence[Gradients]:
        """What is offered, on its way into the mean."""
        return [self.rounds.given]

    def session(self, target: str) -> "SynchronousSession":
        """A session to the ps and this worker."""
        return SynchronousSession(self, target)


class SynchronousSession(TrainingSession):
    """Offers gradients, one a round, and waits in between; the chief's session also runs the aggregator."""

    def __init__(self, graph: SynchronousGraph, target: str) -> None:
        super().__init__(graph, target)
        self._rounds, self._is_chief = graph.rounds, graph.cluster.is_chief
        self._wait = self.session.make_callable(graph.rounds.wait)
        self._waker = Waker(self.session.make_callable(graph.rounds.ring_own))
        self._aggregator: Aggregator | None = None
        self._offered = CLOSED
        self._standing: Standing | None = None

    def initialise(self) -> None:
        """Give every variable its first value; no round is open until the aggregator begins."""
        self.session.run(self._rounds.initializer)
        super().initialise()

    def begin(self) -> None:
        """Start what wakes this worker; where this is the chief, the aggregator, too."""
        self._waker.start()
        if self._is_chief:
            self._aggregator = Aggregator(self.session, self._rounds, self.last_step)
            self._aggregator.start()

    def end(self) -> None:
        """Stop both, the aggregator at a step's boundary."""
        if self._aggregator is not None:
            self._aggregator.stop()
        self._aggregator = None
        self._waker.stop()

    def held_still(self) -> AbstractContextManager[object]:
        """Let the aggregator begin no step meanwhile."""
        return super().held_still() if self._aggregator is None else self._aggregator.between_steps

    def step(self, raise_if_stopping: Callable[[], None]) -> StepResult:
        """Offer one batch's gradients and wait for the end of the round.

        Raises RunEnding, and what `raise_if_stopping` raises, only before the offer: one that was made counts
        as a step of this worker, whatever becomes of it.
        """
        began = time.monotonic()
        standing = self._wait_beyond(self._offered, self._standing, raise_if_stopping)
        if standing.counters[STOP_CODE]:
            raise RunEnding(standing.counters[STOP_CODE], "")
        offered = time.monotonic()
        loss, numbers = self._waker.watch(self._step)
        # By the clock of ps 0, which may be set meanwhile.
        seconds_of_call = time.monotonic() - offered
        seconds_of_offer = seconds_of_call - min(max(float(numbers[-1]) / 1e6, 0.0), seconds_of_call)
        before, standing = map(Standing.from_values, np.split(numbers[:-1], 2))
        self._offered = before.round
        if math.isfinite(loss):
            # Who was told to stop hears of it again before the next step.
            with suppress(StopRequested):
                standing = self._wait_beyond(self._offered, standing, raise_if_stopping)
        self._standing = standing
        waited = time.monotonic() - began - seconds_of_offer
        return StepResult(float(loss), before.counters[GLOBAL_STEP], standing.counters, waited)

    def _wait_beyond(
        self, round_: int, standing: Standing | None, raise_if_stopping: Callable[[], None]
    ) -> Standing:
        """Wait until another round is open than this one; the run's end and its last step end this too."""
        while True:
            if standing is not None:
                others = tuple(worker for worker in standing.awaited if worker != self._rounds.worker)
                # The chief, where enough gradients are there and it makes no step.
                self.awaited = (0,) if len(standing.contributors) >= self._rounds.replicas else others
                if standing.round > round_:
                    return standing
                if standing.counters[STOP_CODE] or standing.counters[GLOBAL_STEP] >= self.last_step:
                    return standing
            if self._aggregator is not None:
                self._aggregator.raise_if_failed()
            # Where TensorFlow holds the aggregator, this thread must look held too: to the watchdog.
            if self._aggregator is None or not self._aggregator.hangs:
                raise_if_stopping()
            standing = Standing.from_values(self._waker.watch(self._wait))

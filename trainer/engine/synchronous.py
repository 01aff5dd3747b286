"""Synchronous training: a global step applies the mean of `replicas_to_aggregate` workers' gradients.

Each worker offers the gradients of one batch, and waits until the first `replicas_to_aggregate` offers have
made a global step. Workers beyond that number are backups: gradients that come too late are dropped.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.ledger import RUN_OVER
from trainer.coordination.ledger_parts import GLOBAL_STEP, STOP_CODE
from trainer.engine.bells import Waker
from trainer.engine.optimizers import AnyGradients
from trainer.engine.round_keeper import RoundKeeper
from trainer.engine.synchronous_rounds import CLOSED, RoundOperations, Standing
from trainer.engine.training import StepResult, TrainingGraph, TrainingSession, sizes_of_calls
from trainer.process.failure import RunEnding, StopRequested


class SynchronousGraph(TrainingGraph):
    """A graph whose steps offer this worker's gradients; the round's last offer also makes the global step.

    The graph has several steps in a row, so that one call into TensorFlow can take several steps.

    Attributes:
        calls: {number of steps: [losses [steps], int64 numbers]}. The numbers are steps + 1 standings, one
            before each step and one after the last, then for each step the microseconds that it waited.

    """

    def build_step(self) -> None:
        """Add the operations that offer gradients, and the operations of the chief.

        This sets `step`, `calls` and `rounds`.
        """
        workers, most = self.cluster.workers, self.settings.most_steps_in_a_call
        replicas = self.settings.replicas_to_aggregate or workers
        self.rounds = RoundOperations(workers, self.cluster.index, replicas, self.counters)
        losses: list[tf.Tensor] = []
        waits: list[tf.Tensor] = []
        standings = [self.rounds.standing]
        for batches in self.next_batches(self.cluster.index, self.settings.batch_size, most):
            loss, sent = self.learn_flat(self.context, batches, after=standings[-1:])
            if not losses:
                self.rounds.build(sent, self.optimizers)
            after, waited = self.rounds.offer(standings[-1], sent)
            losses.append(loss)
            standings.append(after)
            waits.append(waited)
        with tf.device(self.counters.device):
            numbers = {
                size: tf.concat([*standings[: size + 1], waits[:size]], axis=0)
                for size in sizes_of_calls(most)
            }
        self.calls = {size: [tf.stack(losses[:size]), rows] for size, rows in numbers.items()}
        self.step = self.calls[1]

    def applied_gradients(self) -> Sequence[AnyGradients]:
        """Return a list with one element: pairs (gradient that this worker offers, variable).

        The mean is taken later.
        """
        return [self.rounds.offered]

    def session(self, target: str) -> "SynchronousSession":
        """Return a session to the ps and this worker."""
        return SynchronousSession(self, target)


class SynchronousSession(TrainingSession):
    """Offers gradients once in each round, and waits in between.

    The last missing offer of a round makes the global step, in its worker's own call. The chief's session
    also opens, closes, holds and repairs rounds.
    """

    def __init__(self, graph: SynchronousGraph, target: str) -> None:
        super().__init__(graph, target)
        self._rounds = graph.rounds
        larger = {size: call for size, call in graph.calls.items() if size > 1}
        self._calls = {1: self._step, **{size: self.session.make_callable(larger[size]) for size in larger}}
        self._wait = self.session.make_callable(graph.rounds.wait)
        self._waker = Waker(self.session.make_callable(graph.rounds.ring_own))
        self._keeper = RoundKeeper(self.session, graph.rounds) if graph.cluster.is_chief else None
        # The last round in which this worker has offered gradients.
        self._offered_round = CLOSED
        self._standing: Standing | None = None

    def initialise(self) -> None:
        """Give every variable its initial value; no round is open until the chief calls `begin`."""
        self.session.run(self._rounds.initializers)
        super().initialise()

    def create(self, ps: Collection[str] | None = None) -> bool:
        """Create the variables to be restored, and return the same as the base class.

        No round is open until the chief calls `begin`.
        """
        self.session.run(self._rounds.initializers)
        return super().create(ps)

    def begin(self) -> None:
        """Start the thread that wakes this worker; on the chief, open a round."""
        self._waker.start()
        if self._keeper is not None:
            self._keeper.begin(self.last_step)

    def end(self) -> None:
        """On the chief, close the rounds, but not within a global step; then tell the thread to end."""
        if self._keeper is not None:
            self._keeper.end()
        self._waker.stop()

    def updates_paused(self) -> AbstractContextManager[object]:
        """Return a context in which the global step does not change; on other workers it does nothing."""
        return super().updates_paused() if self._keeper is None else self._keeper.hold_rounds()

    def step(self, note_wait: Callable[[], None]) -> StepResult:
        """Take one step as `steps` does, with the same exceptions, and return its result."""
        return self.steps(1, note_wait)[0]

    def steps(self, most: int, note_wait: Callable[[], None]) -> Sequence[StepResult]:
        """Offer the gradients of up to `most` batches, each in a later round, and return each step's result.

        The method waits for the end of the last round. An offer counts as a training step of this worker even
        if it is dropped. If a wait inside the call ended before its round did, the next offer went to the
        same round. Such an offer has no effect and is no step, so there may be fewer results than offers, but
        at least one.

        Before the offers, it raises RunEnding if the run was stopped or failed, and what `note_wait` raises.
        """
        began = time.monotonic()
        standing = self._wait_beyond(self._offered_round, self._standing, note_wait)
        if standing.counters[STOP_CODE] not in {0, RUN_OVER}:
            raise RunEnding(standing.counters[STOP_CODE], "")
        size = max(size for size in self._calls if size <= most)
        offered = time.monotonic()
        losses, numbers = self._waker.watch(self._calls[size], size)
        waits = _seconds(numbers[-size:], time.monotonic() - offered)
        standings = [Standing.from_values(values) for values in np.split(numbers[:-size], size + 1)]
        results: list[StepResult] = []
        for loss, before, after, waited in zip(losses, standings, standings[1:], waits, strict=False):
            if before.round > self._offered_round or not results:
                self._offered_round = before.round
                step = StepResult(float(loss), before.counters[GLOBAL_STEP], after.counters, waited)
                results.append(step)
            else:
                results[-1] = _longer(results[-1], after, waited)
        results[0] = _longer(results[0], None, offered - began)
        ended = time.monotonic()
        self._standing = standings[-1]
        if np.isfinite(losses).all():
            # A stop request is raised again before the next step.
            with suppress(StopRequested):
                self._standing = self._wait_beyond(self._offered_round, self._standing, note_wait)
        results[-1] = _longer(results[-1], self._standing, time.monotonic() - ended)
        return results

    def _wait_beyond(self, round_: int, standing: Standing | None, note_wait: Callable[[], None]) -> Standing:
        """Wait for a round after `round_`, a stop code, or the last step; return the standing at that time.

        `standing` is what was read last, or None; if it shows one of these already, it is returned at once.
        Raises what `note_wait` raises.
        """
        while True:
            if standing is not None:
                others = tuple(worker for worker in standing.awaited if worker != self._rounds.worker)
                # If the round has enough gradients, it waits only for the chief, which holds
                # it.
                self.awaited = (0,) if len(standing.contributors) >= self._rounds.replicas else others
                if standing.round > round_:
                    return standing
                if standing.counters[STOP_CODE] or standing.counters[GLOBAL_STEP] >= self.last_step:
                    return standing
                if self._keeper is not None:
                    self._keeper.end_stuck_round(standing)
            note_wait()
            standing = Standing.from_values(self._waker.watch(self._wait))


def _seconds(microseconds: npt.NDArray[np.int64], call_seconds: float) -> list[float]:
    """Return the waits in seconds, scaled down if together they are longer than the call that they are in.

    The waits were measured by the clock of ps 0, which may have been set meanwhile.
    """
    seconds = np.clip(microseconds / 1e6, 0.0, call_seconds)
    return [float(each) for each in seconds * min(1.0, call_seconds / max(float(seconds.sum()), 1e-9))]


def _longer(step: StepResult, standing: Standing | None, waited: float) -> StepResult:
    """Return a copy of `step` with `waited` more seconds of waiting, and the counters of `standing`.

    The counters stay if `standing` is None.
    """
    counters = step.counters if standing is None else standing.counters
    return replace(step, counters=counters, waiting_seconds=(step.waiting_seconds or 0.0) + waited)

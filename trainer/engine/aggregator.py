"""The chief's part in synchronous training: a thread that ends each round once its gradients are there."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Lock, Thread

import numpy as np
import tensorflow as tf

from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, STOP_CODE
from trainer.engine.bells import Waker
from trainer.engine.synchronous_rounds import RoundOperations, Standing
from trainer.process.console import say

v1 = tf.compat.v1

# After its admission a worker only has to send a number to each ps. A worker that takes longer than this was
# killed or stopped in between.
_SECONDS_TO_DELIVER = 3.0
_SECONDS_TO_END = 5.0
_SECONDS_TO_ANSWER = 10.0


class Aggregator:
    """A thread that waits until a round's gradients are there, and then applies them as one global step.

    The thread ends only between two global steps. While another thread holds the lock `between_steps`, no
    global step begins: so the variables can be saved.
    """

    def __init__(self, session: tf.compat.v1.Session, operations: RoundOperations, last_step: int) -> None:
        self._session, self._operations, self._last_step = session, operations, last_step
        self._wait = session.make_callable(operations.wait_for_gradients)
        self._waker = Waker(session.make_callable(operations.ring_aggregator))
        fed = [operations.increment, operations.next_round]
        self._advance = session.make_callable(operations.advance, fed)
        self._stopping = Event()
        self.between_steps = Lock()
        self._error: BaseException | None = None
        self._called_at: float | None = None
        self._half_delivered: tuple[tuple[int, ...], float] = ((), 0.0)
        self._thread = Thread(target=self._run, name="aggregator", daemon=True)

    def start(self) -> None:
        """Start the thread, which opens a round first."""
        self._waker.start()
        self._thread.start()

    def stop(self) -> None:
        """End the thread between two global steps; wait for that, for 5 s at most if a ps does not answer."""
        self._stopping.set()
        self._thread.join(_SECONDS_TO_END)
        if self._thread.is_alive():
            say("The aggregator does not end: a ps does not answer.")
        self._waker.stop()

    @property
    def hangs(self) -> bool:
        """Whether a call of the thread into TensorFlow has lasted for more than 10 s."""
        called_at = self._called_at
        return called_at is not None and time.monotonic() - called_at > _SECONDS_TO_ANSWER

    def raise_if_failed(self) -> None:
        """Raise the exception that ended the thread, if any."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            standing = self._open(self._wait_for_gradients())
            while not self._over(standing):
                if len(standing.contributors) >= self._operations.replicas:
                    standing = self._step(standing)
                elif self._is_stuck(standing):
                    names = ", ".join(f"worker{worker}" for worker in standing.half_delivered)
                    say(f"{names} stopped while it sent gradients: the step is repeated without them.")
                    standing = self._open(standing)
                else:
                    standing = self._wait_for_gradients()
        except BaseException as error:
            self._error = error  # raised in the thread that waits for the rounds

    def _over(self, standing: Standing) -> bool:
        counters = standing.counters
        ended = bool(counters[STOP_CODE]) or counters[GLOBAL_STEP] >= self._last_step
        return ended or self._stopping.is_set()

    def _wait_for_gradients(self) -> Standing:
        """Return the standing after the aggregator's bell, which the waker also rings now and then."""
        with self._called():
            return Standing.from_values(self._waker.watch(self._wait))

    def _step(self, standing: Standing) -> Standing:
        """Apply the means of the round's gradients and open the next round."""
        increment = np.zeros(len(standing.counters), np.int64)
        increment[GLOBAL_STEP] = 1
        increment[[FIRST_WORKER + worker for worker in standing.contributors]] = 1
        following = standing.round + 1
        with self.between_steps, self._called():
            counters = self._advance(increment, following)
        return replace(standing, round=following, counters=tuple(map(int, counters)))

    def _open(self, standing: Standing) -> Standing:
        """Open a new round, and drop what an earlier aggregator or a killed worker left in the accumulators.

        Workers that had offered gradients see that their round has passed, and offer new ones.
        """
        # The number must exceed those of all earlier processes of this run, which a restarted ps forgets.
        first = max(standing.round + 1, int(time.time() * 1000))
        operations = self._operations
        with self.between_steps, self._called():
            self._session.run(operations.move, {operations.next_round: first})
            counts = self._session.run(operations.counts)
            held = [drop for drop, count in zip(operations.drops, counts, strict=True) if count]
            if held:
                self._session.run(held)
            # Each drop has raised the step of its accumulator by one; this makes all steps equal again.
            self._session.run(operations.move, {operations.next_round: first + 1})
            self._session.run(operations.open, {operations.next_round: first + 1})
        self._half_delivered = ((), 0.0)
        return replace(standing, round=first + 1)

    def _is_stuck(self, standing: Standing) -> bool:
        """Whether an admitted worker has not delivered for so long that it is taken to be gone."""
        which, since = self._half_delivered
        if standing.half_delivered != which:
            self._half_delivered = (standing.half_delivered, time.monotonic())
            return False
        return bool(which) and time.monotonic() >= since + _SECONDS_TO_DELIVER

    @contextmanager
    def _called(self) -> Iterator[None]:
        self._called_at = time.monotonic()
        try:
            yield
        finally:
            self._called_at = None

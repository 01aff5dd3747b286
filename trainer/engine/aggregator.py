"""The chief's part in synchronous training: it ends each round once the gradients are there."""

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

# What is left after a worker's admission is to send a number to each ps. One that has not come that far by
# now was killed or stopped in between.
_SECONDS_TO_DELIVER = 3.0
_SECONDS_TO_END = 5.0
_SECONDS_TO_ANSWER = 10.0


class Aggregator:
    """A thread that waits until a round's gradients are there, and then makes the global step of them.

    While it waits no step is under way: it ends, and the variables are saved, at a step's boundary. While
    somebody holds `between_steps`, none begins.
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
        """Open a round, and go on from there."""
        self._waker.start()
        self._thread.start()

    def stop(self) -> None:
        """End between two steps; waits for that, but not for ever where a ps does not answer."""
        self._stopping.set()
        self._thread.join(_SECONDS_TO_END)
        if self._thread.is_alive():
            say("The aggregator does not end: a ps does not answer.")
        self._waker.stop()

    @property
    def hangs(self) -> bool:
        """Whether TensorFlow has held the thread for long."""
        called_at = self._called_at
        return called_at is not None and time.monotonic() - called_at > _SECONDS_TO_ANSWER

    def raise_if_failed(self) -> None:
        """Raise what the thread has died of."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            standing = self._open(self._look())
            while not self._over(standing):
                if len(standing.contributors) >= self._operations.replicas:
                    standing = self._step(standing)
                elif self._is_stuck(standing):
                    names = ", ".join(f"worker{worker}" for worker in standing.half_delivered)
                    say(f"{names} stopped amid its gradients: the step is taken again without them.")
                    standing = self._open(standing)
                else:
                    standing = self._look()
        except BaseException as error:
            self._error = error  # raised in the thread that waits for the rounds

    def _over(self, standing: Standing) -> bool:
        counters = standing.counters
        ended = bool(counters[STOP_CODE]) or counters[GLOBAL_STEP] >= self._last_step
        return ended or self._stopping.is_set()

    def _look(self) -> Standing:
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
        """Leave behind what another aggregator, or a worker that was killed, has left in the accumulators.

        Workers that had offered gradients see that their round has passed, and offer new ones.
        """
        # Beyond the rounds of every earlier process of this run: a ps that came back does not remember them.
        first = max(standing.round + 1, int(time.time() * 1000))
        operations = self._operations
        with self.between_steps, self._called():
            self._session.run(operations.move, {operations.next_round: first})
            counts = self._session.run(operations.counts)
            held = [drop for drop, count in zip(operations.drops, counts, strict=True) if count]
            if held:
                self._session.run(held)
            # What was dropped has moved its accumulator on by one; now all are alike again.
            self._session.run(operations.move, {operations.next_round: first + 1})
            self._session.run(operations.open, {operations.next_round: first + 1})
        self._half_delivered = ((), 0.0)
        return replace(standing, round=first + 1)

    def _is_stuck(self, standing: Standing) -> bool:
        """Whether a worker that was admitted has not delivered for so long that it never will."""
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

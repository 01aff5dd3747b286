"""The chief's part in synchronous training: it ends each round once the gradients are there."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition, Event, Lock, Thread

import numpy as np
import tensorflow as tf

from trainer.coordination.bounded_calls import run_once_more
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, STOP_CODE
from trainer.engine.synchronous_rounds import RoundOperations, Standing
from trainer.process.console import say

v1 = tf.compat.v1

_SHARE_OF_USUAL_WAIT = 0.7
_SHORTEST_NAP = 0.0003
_NAP_GROWTH = 1.3
_LONGEST_NAP = 0.5
# What is left after a worker's admission is to send a number to each ps. One that has not come that far by
# now was killed or stopped in between.
_SECONDS_TO_DELIVER = 3.0
_SECONDS_TO_END = 5.0
_SECONDS_TO_ANSWER = 10.0


class Pace:
    """How long to sleep before the next look at ps 0: most of the usual wait, then short and longer naps."""

    def __init__(self) -> None:
        self._usual = self._since = self._nap = 0.0
        self._looks = 0

    def begin(self) -> None:
        """Begin to wait."""
        self._since, self._looks, self._nap = time.monotonic(), 0, _SHORTEST_NAP

    def nap(self) -> float:
        """Seconds to sleep before the next look; never more than 0.5."""
        self._looks += 1
        if self._looks == 1:
            return min(_SHARE_OF_USUAL_WAIT * self._usual, _LONGEST_NAP)
        longest = min(max(self._usual / 20, _LONGEST_NAP / 10), _LONGEST_NAP)
        nap, self._nap = self._nap, self._nap * _NAP_GROWTH
        return min(nap, longest)

    def end(self) -> None:
        """Learn from a wait that is over. One look says only that the first nap was not too short."""
        if self._looks <= 1:
            self._usual *= _SHARE_OF_USUAL_WAIT
        else:
            # A single long wait, for a worker that was stopped, must not slow down what follows.
            seconds = min(time.monotonic() - self._since, 2 * self._usual + 0.001)
            self._usual += 0.2 * (seconds - self._usual)


class Aggregator:
    """A thread that looks whether a round's gradients are there, and then makes the global step of them.

    Between two looks nothing is under way: it ends, and the variables are saved, at a step's boundary. While
    somebody holds `between_steps`, none begins.
    """

    def __init__(self, session: tf.compat.v1.Session, operations: RoundOperations, last_step: int) -> None:
        self._session, self._operations, self._last_step = session, operations, last_step
        self._read = session.make_callable(operations.standing)
        fed = [operations.increment, operations.next_round]
        self._advance = session.make_callable(operations.advance, fed)
        self._pace = Pace()
        self._stopping = Event()
        self.between_steps = Lock()
        self._changed = Condition()
        self._standing: Standing | None = None
        self._error: BaseException | None = None
        self._called_at: float | None = None
        self._half_delivered: tuple[tuple[int, ...], float] = ((), 0.0)
        self._thread = Thread(target=self._run, name="aggregator", daemon=True)

    def start(self) -> None:
        """Open a round, and go on from there."""
        self._thread.start()

    def stop(self) -> None:
        """End between two steps; waits for that, but not for ever where a ps does not answer."""
        self._stopping.set()
        self._thread.join(_SECONDS_TO_END)
        if self._thread.is_alive():
            say("The aggregator does not end: a ps does not answer.")

    @property
    def hangs(self) -> bool:
        """Whether TensorFlow has held the thread for long."""
        called_at = self._called_at
        return called_at is not None and time.monotonic() - called_at > _SECONDS_TO_ANSWER

    def wait_beyond(self, round_: int, seconds: float) -> Standing | None:
        """What was seen last, as soon as it is of a later round, or after `seconds`.

        None before the first look. Raises what the thread has died of.
        """

        def over() -> bool:
            return self._error is not None or (self._standing is not None and self._standing.round > round_)

        with self._changed:
            self._changed.wait_for(over, seconds)
            if self._error is not None:
                raise self._error
            return self._standing

    def _run(self) -> None:
        try:
            standing = self._open(self._look())
            while not self._over(standing):
                standing = self._wait(standing)
                if len(standing.contributors) >= self._operations.replicas:
                    standing = self._step(standing)
                elif self._is_stuck(standing):
                    names = ", ".join(f"worker{worker}" for worker in standing.half_delivered)
                    say(f"{names} stopped amid its gradients: the step is taken again without them.")
                    standing = self._open(standing)
        except BaseException as error:
            # Raised in the main thread, which waits for the rounds.
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _over(self, standing: Standing) -> bool:
        counters = standing.counters
        ended = bool(counters[STOP_CODE]) or counters[GLOBAL_STEP] >= self._last_step
        return ended or self._stopping.is_set()

    def _wait(self, standing: Standing) -> Standing:
        self._pace.begin()
        while len(standing.contributors) < self._operations.replicas:
            if self._over(standing) or self._is_stuck(standing) or self._stopping.wait(self._pace.nap()):
                return standing
            standing = self._look()
        self._pace.end()
        return standing

    def _look(self) -> Standing:
        with self._called():
            values = run_once_more(self._read)
        return self._see(Standing.from_values(values))

    def _step(self, standing: Standing) -> Standing:
        """Apply the means of the round's gradients and open the next round."""
        increment = np.zeros(len(standing.counters), np.int64)
        increment[GLOBAL_STEP] = 1
        increment[[FIRST_WORKER + worker for worker in standing.contributors]] = 1
        following = standing.round + 1
        with self.between_steps, self._called():
            counters = self._advance(increment, following)
        return self._see(replace(standing, round=following, counters=tuple(map(int, counters))))

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
        return self._look()

    def _is_stuck(self, standing: Standing) -> bool:
        """Whether a worker that was admitted has not delivered for so long that it never will."""
        which, since = self._half_delivered
        if standing.half_delivered != which:
            self._half_delivered = (standing.half_delivered, time.monotonic())
            return False
        return bool(which) and time.monotonic() >= since + _SECONDS_TO_DELIVER

    def _see(self, standing: Standing) -> Standing:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()
        return standing

    @contextmanager
    def _called(self) -> Iterator[None]:
        self._called_at = time.monotonic()
        try:
            yield
        finally:
            self._called_at = None

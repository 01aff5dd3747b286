"""The chief's part in synchronous training: it opens rounds, holds them, and ends those that do not end."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.bounded_calls import NO_ANSWER, call_within, run_once_more
from trainer.engine.synchronous_rounds import CLOSED, RoundOperations, Standing
from trainer.process.console import say

# After its admission a worker only has to send a number to each ps, and after the last of a round's gradients
# the ps only have to apply their mean. A worker whose call takes longer than this was killed in between.
_SECONDS_TO_DELIVER = 3.0
_SECONDS_TO_END = 5.0


class RoundKeeper:
    """Opens and closes the rounds of a session; workers complete them in calls of their own.

    While rounds are *held*, none is completed. A round that both a worker and the keeper complete is applied
    once. Each method may raise tf.errors.OpError.
    """

    def __init__(self, session: tf.compat.v1.Session, operations: RoundOperations) -> None:
        self._session, self._operations = session, operations
        self._last_step: int | None = None
        # A round that does not end, as far as it got, and since when.
        self._stuck: tuple[object, float] = (None, 0.0)

    def begin(self, last_step: int) -> None:
        """Open a round; the rounds close with the global step `last_step`."""
        self._last_step = last_step
        self._open(self._hold())
        self._release()

    def end(self) -> None:
        """Close the rounds between two global steps; this takes 5 s at most if a ps does not answer."""
        if self._last_step is not None:
            self._last_step = None
            with suppress(*NO_ANSWER):  # its session is lost, and with it the rounds
                call_within(_SECONDS_TO_END, self._close)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Return a context in which no global step begins, and none goes on."""
        self._hold()
        try:
            yield
        finally:
            self._release()

    def keep_going(self, standing: Standing) -> None:
        """End a round in which a worker has stopped for 3 s; call this regularly while a round is awaited."""
        is_complete = self._is_complete(standing)
        found = (standing.round, is_complete, standing.half_delivered)
        if found != self._stuck[0]:
            self._stuck = (found, time.monotonic())
        is_stuck = is_complete or bool(standing.half_delivered)
        if not is_stuck or time.monotonic() < self._stuck[1] + _SECONDS_TO_DELIVER:
            return
        held = self._hold()
        if held.round == standing.round and held.half_delivered:
            names = ", ".join(f"worker{worker}" for worker in held.half_delivered)
            say(f"{names} stopped while it sent gradients: the step is repeated without them.")
            self._open(held)
        self._release()

    def _hold(self) -> Standing:
        """Let no worker complete a round from now on; complete the one that has its gradients."""
        self._run(self._operations.hold)
        return self._completed(self._read())

    def _release(self) -> None:
        self._run(self._operations.release)
        # Whoever delivered the last gradients while rounds were held has not completed the round.
        self._completed(self._read())

    def _close(self) -> None:
        self._hold()
        self._set_open(CLOSED)

    def _open(self, standing: Standing) -> None:
        """Open a new round, and drop what a killed worker left in the accumulators; rounds must be held.

        Workers that had offered gradients see that their round has passed, and offer new ones.
        """
        # The number must exceed those of all earlier processes of this run, which a restarted ps forgets.
        first = max(standing.round + 1, int(time.time() * 1000))
        operations = self._operations
        self._run(operations.move, {operations.round: first})
        counts = self._session.run(operations.counts)
        held = [drop for drop, count in zip(operations.drops, counts, strict=True) if count]
        if held:
            self._session.run(held)
        # Each drop has raised the step of its accumulator by one; this makes all steps equal again.
        self._run(operations.move, {operations.round: first + 1})
        self._set_open(first + 1)

    def _completed(self, standing: Standing) -> Standing:
        """Complete the round if it has its gradients; return the standing after that."""
        if not self._is_complete(standing):
            return standing
        self._run(self._operations.complete, {self._operations.round: standing.round})
        return self._read()

    def _is_complete(self, standing: Standing) -> bool:
        return standing.round != CLOSED and len(standing.contributors) >= self._operations.replicas

    def _read(self) -> Standing:
        return Standing.from_values(self._run(self._operations.standing))

    def _set_open(self, round_: int) -> None:
        operations = self._operations
        last_step = self._last_step or 0
        self._run(operations.open, {operations.round: round_, operations.last_step: last_step})

    def _run(
        self, fetched: tf.Operation | tf.Tensor, feeds: Mapping[tf.Tensor, int] | None = None
    ) -> npt.NDArray[np.int64]:
        """Run an operation that can be repeated; return its numbers, if it has any."""
        value: npt.NDArray[np.int64] = run_once_more(lambda: self._session.run(fetched, feeds))
        return value

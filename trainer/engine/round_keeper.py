"""The chief's part in synchronous training: it opens rounds, holds rounds, and ends rounds that got stuck."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.bounded_calls import NO_ANSWER, call_within, run_once_more
from trainer.engine.synchronous_rounds import CLOSED, RoundOperations, Standing
from trainer.process.console import say

# How long a worker may take from its admission to the end of its delivery, which is one small number to each
# ps, and how long the ps may take to apply the mean once a round's last gradients are there. After that time
# the worker counts as killed.
_SECONDS_TO_DELIVER = 3.0
_SECONDS_TO_END = 5.0


class RoundKeeper:
    """Opens and closes the rounds of a session; the workers complete the rounds in their own calls.

    While rounds are *held*, no round is completed. If a worker and the keeper both complete a round, it is
    applied once. Each method except `end` may raise tf.errors.OpError.
    """

    def __init__(self, session: tf.compat.v1.Session, operations: RoundOperations) -> None:
        self._session, self._operations = session, operations
        self._last_step: int | None = None
        # (the state of the round: its number, whether it is complete, who delivered half; the time since
        # which the state is unchanged)
        self._stuck: tuple[object, float] = (None, 0.0)

    def begin(self, last_step: int) -> None:
        """Open a round; each completed round opens the next, until the global step reaches `last_step`."""
        self._last_step = last_step
        self._open(self._hold())
        self._release()

    def end(self) -> None:
        """Close the rounds, but never in the middle of a global step; nothing happens if they did not begin.

        If a ps does not answer, return after 5 s at most.
        """
        if self._last_step is not None:
            self._last_step = None
            with suppress(*NO_ANSWER):  # then the session is lost, and with it the rounds
                call_within(_SECONDS_TO_END, self._close)

    @contextmanager
    def hold_rounds(self) -> Iterator[None]:
        """Return a context in which no round is completed, so that the global step does not change.

        A round that has all its gradients is completed before the context begins.
        """
        self._hold()
        try:
            yield
        finally:
            self._release()

    def end_stuck_round(self, standing: Standing) -> None:
        """Repair the open round if a worker stopped in it at least 3 s ago; else do nothing.

        A round that has all its gradients is completed; another is repeated without the worker. `standing` is
        what the caller read last. This does not wait for workers: call it regularly while waiting for a
        round.
        """
        is_complete = self._is_complete(standing)
        state = (standing.round, is_complete, standing.half_delivered)
        if state != self._stuck[0]:
            self._stuck = (state, time.monotonic())
        is_stuck = is_complete or bool(standing.half_delivered)
        if not is_stuck or time.monotonic() < self._stuck[1] + _SECONDS_TO_DELIVER:
            return
        now = self._hold()
        if now.round == standing.round and now.half_delivered:
            names = ", ".join(f"worker{worker}" for worker in now.half_delivered)
            say(f"{names} stopped while it sent gradients: the step is repeated without them.")
            self._open(now)
        self._release()

    def _hold(self) -> Standing:
        """Let no worker complete a round from now on; return the standing.

        A round that has all its gradients is completed first, by this method.
        """
        self._run(self._operations.hold)
        return self._complete_if_due(self._read())

    def _release(self) -> None:
        self._run(self._operations.release)
        # A worker that delivered the last gradients while rounds were held has not completed the
        # round.
        self._complete_if_due(self._read())

    def _close(self) -> None:
        self._hold()
        self._set_open(CLOSED)

    def _open(self, standing: Standing) -> None:
        """Open a new round, and drop the gradients that a killed worker left; the rounds must be held.

        Workers that had offered gradients see that their round has passed, and offer new gradients.
        """
        # The number must exceed all round numbers of this run's earlier processes, which a restarted
        # ps has forgotten.
        first = max(standing.round + 1, int(time.time() * 1000))
        operations = self._operations
        self._run(operations.move, {operations.round: first})
        counts = self._session.run(operations.counts)
        drops = [drop for drop, count in zip(operations.drops, counts, strict=True) if count]
        if drops:
            self._session.run(drops)
        # Each drop has raised the step of its accumulator by 1; this makes the steps of all
        # accumulators equal again.
        self._run(operations.move, {operations.round: first + 1})
        self._set_open(first + 1)

    def _complete_if_due(self, standing: Standing) -> Standing:
        """Complete the open round if it has all its gradients; return the standing after that."""
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
        """Run an operation that may safely run twice; return the numbers of its result, if it has one."""
        value: npt.NDArray[np.int64] = run_once_more(lambda: self._session.run(fetched, feeds))
        return value

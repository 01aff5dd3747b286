"""How often the chief sees another process of a worker: each draws a nonce and leaves it on ps 0."""

from __future__ import annotations

import time
from collections.abc import Mapping

import tensorflow as tf

from trainer.calls import CallTookTooLong
from trainer.console import say
from trainer.ledger import Ledger
from trainer.notes import integer_in
from trainer.reporting import Progress

_SECONDS_BETWEEN_LOOKS = 2.0


class Restarts:
    """Counts the restarts of each worker since this chief began to train, for `progress.json`."""

    def __init__(self, progress: Progress) -> None:
        """Take where to count them; nobody has been seen yet."""
        self._progress = progress
        self._nonces: dict[str, int] = {}
        self._next_look = 0.0

    def see(self, nonces: Mapping[str, int]) -> None:
        """Compare the nonce of each worker, such as "worker1", with the one seen before."""
        for worker, nonce in nonces.items():
            if self._nonces.get(worker, nonce) != nonce:
                self._progress.restarts[int(worker.removeprefix("worker"))] += 1
                say(f"{worker} was started again.")
            self._nonces[worker] = nonce

    def look_in_time(self, ledger: Ledger) -> None:
        """Look at the notes on ps 0 every 2 s: nobody tells a chief in the midst of its steps."""
        if time.monotonic() >= self._next_look:
            self.look(ledger)

    def look(self, ledger: Ledger) -> None:
        """Look at the notes on ps 0 now."""
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        try:
            notes = ledger.notes()
        except (tf.errors.OpError, CallTookTooLong):
            return  # The next step finds out what a ps 0 that does not answer means.
        self.see({f"worker{worker}": integer_in(note, "nonce") for worker, note in notes.items()})

"""Bells on ps 0: who waits there for others is woken, and nobody looks in vain.

A bell is a queue. To ring it is to put a token into it unless one is there, to wait for it is to take one. A
token says no more than "look": one too many costs a look. One too few is made good by the `Waker`, as where a
host went without a word amid a wait, whose call on the ps then takes one token of the process that follows.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import TypeVar

import tensorflow as tf

from trainer.coordination.bounded_calls import run_once_more

v1 = tf.compat.v1

Result = TypeVar("Result")

_LONGEST_WAIT = 0.25


def create_bell(name: str) -> tf.queue.QueueBase:
    """The bell of this name, on the device in force: one for all processes."""
    return v1.FIFOQueue(-1, tf.int32, [[]], shared_name=f"psfleet/bell/{name}")


def ring(bells: Sequence[tf.queue.QueueBase], condition: bool | tf.Tensor = True) -> tf.Operation:
    """Ring those that are silent, where a condition holds: the bell of a worker that is gone never fills."""
    places, nowhere = tf.range(len(bells)), len(bells)
    is_silent = tf.equal(tf.stack([bell.size() for bell in bells]), 0)
    # One token or none for each bell, without a branch.
    *tokens, _ = tf.dynamic_partition(
        places, tf.where(is_silent & condition, places, nowhere), num_partitions=len(bells) + 1
    )
    return tf.group(*[bell.enqueue_many([token]) for bell, token in zip(bells, tokens, strict=True)])


class Waker:
    """A thread that rings a bell which is waited for once that lasts 0.25 s.

    So who waits sees soon what rings no bell: a stop code, SIGTERM, that the chief is gone.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring, self._ended = ring, Event()
        self._since: float | None = None

    def start(self) -> None:
        """Begin, and ring: the first look waits for nobody."""
        Thread(target=self._run, name="waker", daemon=True).start()

    def stop(self) -> None:
        """End; does not wait for a call that TensorFlow holds, as where the ps is gone."""
        self._ended.set()

    def watch(self, wait: Callable[[], Result]) -> Result:
        """Make a call that waits for the bell; from one thread at a time."""
        self._since = time.monotonic()
        try:
            return run_once_more(wait)
        finally:
            self._since = None

    def _run(self) -> None:
        self._ring_quietly()
        left = _LONGEST_WAIT
        while not self._ended.wait(left):
            since = self._since
            left = _LONGEST_WAIT if since is None else since + _LONGEST_WAIT - time.monotonic()
            if left <= 0:
                self._ring_quietly()
                left = _LONGEST_WAIT

    def _ring_quietly(self) -> None:
        with suppress(tf.errors.OpError):  # who waits sees the same
            run_once_more(self._ring)

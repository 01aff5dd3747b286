"""Bells on ps 0: a task that waits there for other tasks sleeps until its bell rings.

A bell is a queue on the ps. Ringing puts a token into the queue, unless the queue has a token already.
Waiting takes a token out. A token only means that the waiting task should read the state again, so a token
too many does no harm. The `Waker` helps if a token is lost. Example: a host vanishes during a wait; the
pending call of its killed process then takes the token that was meant for the restarted process.
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
    """Return the bell `name` on the current `tf.device`; all processes share the bell by its name."""
    return v1.FIFOQueue(-1, tf.int32, [[]], shared_name=f"psfleet/bell/{name}")


def ring(bells: Sequence[tf.queue.QueueBase], condition: bool | tf.Tensor = True) -> tf.Operation:
    """Return the operation that rings each of the bells if `condition` is true when the operation runs.

    A bell that has a token gets no second token, so the bell of a worker that is gone does not fill up. The
    operation does not wait for anybody.
    """
    places, nowhere = tf.range(len(bells)), len(bells)
    is_silent = tf.equal(tf.stack([bell.size() for bell in bells]), 0)
    # For each bell an int32 tensor with one token or none; this needs no branch in the graph.
    *tokens, _ = tf.dynamic_partition(
        places, tf.where(is_silent & condition, places, nowhere), num_partitions=len(bells) + 1
    )
    return tf.group(*[bell.enqueue_many([token]) for bell, token in zip(bells, tokens, strict=True)])


class Waker:
    """A thread that rings a bell whenever a wait for it has lasted 0.25 s.

    So a waiting task soon notices events that ring no bell: a stop code, SIGTERM, or the loss of the chief.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring, self._ended = ring, Event()
        # (the time at which the call began, how often it waits at most); None while no call waits.
        self._watched: tuple[float, int] | None = None

    def start(self) -> None:
        """Start the thread, which rings once at the start, so that the first wait returns at once."""
        Thread(target=self._run, name="waker", daemon=True).start()

    def stop(self) -> None:
        """Tell the thread to end, and return without waiting for it: its call may hang if the ps is gone."""
        self._ended.set()

    def watch(self, call: Callable[[], Result], waits: int = 1) -> Result:
        """Call `call`, which waits for the bell up to `waits` times, and return its result.

        While the call lasts, the thread rings: first after 0.25 s, then every 0.25 s / `waits`. Only one
        thread at a time may use this method. Raises what `call` raises.
        """
        self._watched = time.monotonic(), waits
        try:
            return run_once_more(call)
        finally:
            self._watched = None

    def _run(self) -> None:
        self._ring_quietly()
        seconds = _LONGEST_WAIT
        while not self._ended.wait(seconds):
            watched, seconds = self._watched, _LONGEST_WAIT
            if watched is None:
                continue
            since, waits = watched
            seconds = since + _LONGEST_WAIT - time.monotonic()
            if seconds <= 0:
                self._ring_quietly()
                seconds = _LONGEST_WAIT / waits

    def _ring_quietly(self) -> None:
        with suppress(tf.errors.OpError):  # the waiting thread gets the same error
            run_once_more(self._ring)

"""Calls into TensorFlow that may never return, and how to leave them behind."""

import ctypes
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import tensorflow as tf

from trainer.process import lost_connection

v1 = tf.compat.v1

Result = TypeVar("Result")

_SECONDS_BETWEEN_SIGNS = 0.5
# What a call does in Python ends by then; one that TensorFlow holds does not.
_SECONDS_TO_LEAVE = 1.0

# Every session that is not closed. TensorFlow closes one that nobody refers to any more, in whatever thread
# that happens, and asks its server for ever where that has gone.
_OPEN: set[tf.compat.v1.Session] = set()


# What a ps that came back empty answers. Only the trainer's own tasks know that all was set before: in
# another program the same words are those of a forgotten initializer, or of a missing file.
_EMPTY_TASK_PHRASES = ("uninitialized", "does not exist")


# TensorFlow runs each call in a thread of its own, which draws the numbers of its requests from a seed of 32
# bits; a task refuses a number that is among the last 100,000 it has seen. That is one in some 43,000.
_SAME_NUMBER = "request was received twice"


class CallTookTooLong(Exception):  # noqa: N818 - not an error of the program
    """TensorFlow did not answer in time."""


class _LeftBehind(BaseException):
    """Ends a call that nobody waits for any more, as soon as TensorFlow lets it go: it must do no more."""


# What a call to another task may raise.
NO_ANSWER = (tf.errors.OpError, CallTookTooLong)


def is_lost_connection(error: Exception) -> bool:
    """Whether this is what a task that went away, or came back empty, looks like."""
    if not isinstance(error, tf.errors.OpError):
        return isinstance(error, CallTookTooLong)
    text = str(error)
    if any(phrase in text for phrase in _EMPTY_TASK_PHRASES):
        return True
    return lost_connection.is_lost_connection(f"{type(error).__module__}.{type(error).__name__}: {text}")


def call_within(
    seconds: float, function: Callable[[], Result], meanwhile: Callable[[], None] | None = None
) -> Result:
    """Call a function that TensorFlow may hold for ever, as when a ps is stopped but its port answers.

    `meanwhile` is called now and then until it returns, as for the watchdog; what that raises ends the call.
    Raises CallTookTooLong after `seconds`. Raises what the function raises. A call that is left behind stays
    in its thread as long as TensorFlow holds it, and goes no further.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=call, daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    try:
        while thread.is_alive() and time.monotonic() < deadline:
            if meanwhile is not None:
                meanwhile()
            thread.join(min(_SECONDS_BETWEEN_SIGNS, max(deadline - time.monotonic(), 0)))
    except BaseException:
        _leave_behind(thread)
        thread.join(_SECONDS_TO_LEAVE)
        raise
    if errors:
        raise errors[0]
    if not results:
        _leave_behind(thread)
        raise CallTookTooLong(f"no answer within {seconds:g} s")
    return results[0]


def _leave_behind(thread: Thread) -> None:
    if thread.ident is not None:
        its, error = ctypes.c_ulong(thread.ident), ctypes.py_object(_LeftBehind)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(its, error)


def run_once_more(run: Callable[[], Result]) -> Result:
    """Run a session's call, and again where a request of it had the number of another's, and was refused."""
    try:
        return run()
    except tf.errors.AbortedError as error:
        if _SAME_NUMBER not in str(error):
            raise
    return run()


def open_session(target: str, graph: tf.Graph, filters: list[str]) -> tf.compat.v1.Session:
    """A session that lasts until `close_in_background` or the end of the process.

    `filters`: the devices that it may use, all where empty. TensorFlow waits for each of these for ever.
    """
    session = v1.Session(target, graph=graph, config=runtime_config(filters=filters))
    _OPEN.add(session)
    return session


def runtime_config(
    threads: int | None = None, gpu_memory_fraction: float | None = None, filters: Sequence[str] = ()
) -> tf.compat.v1.ConfigProto:
    """The configuration of every server and session of ours.

    `threads`: None for as many as TensorFlow takes. `gpu_memory_fraction`: what part of the memory of each
    GPU is taken at once; None: memory is taken as it is needed, and kept. `filters`: as for `open_session`.
    What a session says of threads and memory counts only where it has no server: a server's devices are made
    when it starts. Idle threads do not spin, which took cores from the tasks that had something to do.
    """
    count = threads or 0  # TensorFlow's word for that
    pools = {"intra_op_parallelism_threads": count, "inter_op_parallelism_threads": count}
    config = v1.ConfigProto(**pools, device_filters=filters, experimental={"disable_thread_spinning": True})
    if gpu_memory_fraction is None:
        config.gpu_options.allow_growth = True
    else:
        config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
    return config


def close_in_background(session: tf.compat.v1.Session) -> None:
    """Let a session go without waiting for a task that may be gone."""

    def close() -> None:
        with suppress(tf.errors.OpError):
            session.close()
        _OPEN.discard(session)

    Thread(target=close, daemon=True).start()

"""Calls into TensorFlow that may never return: how to bound, abandon and repeat them."""

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import TypeVar

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from trainer.process import gpus, lost_connection

v1 = tf.compat.v1

Result = TypeVar("Result")

_SECONDS_BETWEEN_SIGNS = 0.5
# The Python part of an abandoned call ends within this time; a call that hangs in TensorFlow does not.
_SECONDS_TO_LEAVE = 1.0

# All open sessions. Python would close a session in the thread that drops the last reference to it, and the
# close would wait for ever for a server that is gone.
_OPEN: set[tf.compat.v1.Session] = set()


# Phrases in the errors of a ps that was restarted empty. Only the trainer's own tasks may conclude this from
# the phrases, because they know that all variables were set. In another program the same words may mean a
# forgotten initializer or a missing file.
_EMPTY_TASK_PHRASES = ("uninitialized", "does not exist")


# TensorFlow runs each call in a thread of its own, and draws the numbers of the thread's requests from a seed
# of 32 bits. A task refuses a request whose number is among the last 100,000 that the task received. That
# happens to about one call in 43,000.
_SAME_NUMBER = "request was received twice"


class CallTookTooLong(Exception):  # noqa: N818 - not an error of the program
    """TensorFlow did not answer in time."""


class _Abandoned(BaseException):
    """Ends an abandoned call when it returns from TensorFlow, so that it has no further effect."""


# The exceptions by which a call to another task shows that the task did not answer.
NO_ANSWER = (tf.errors.OpError, CallTookTooLong)


def is_lost_connection(error: Exception) -> bool:
    """Return True if `error` shows that another task is gone, or was restarted empty.

    CallTookTooLong counts, too: a task that does not answer in time is taken as gone. Return False for all
    other exceptions that are not TensorFlow's.
    """
    if not isinstance(error, tf.errors.OpError):
        return isinstance(error, CallTookTooLong)
    text = str(error)
    if any(phrase in text for phrase in _EMPTY_TASK_PHRASES):
        return True
    return lost_connection.is_lost_connection(f"{type(error).__module__}.{type(error).__name__}: {text}")


def call_within(
    seconds: float, function: Callable[[], Result], meanwhile: Callable[[], None] | None = None
) -> Result:
    """Return the result of `function`, which may hang in TensorFlow, for example if a ps process is stopped.

    `meanwhile` is called at the start and every half second, for example for the watchdog; if it raises, the
    call is abandoned and the exception is raised. Raises CallTookTooLong after `seconds`, and what the
    function raises. An abandoned call stays in its thread as long as TensorFlow holds it, and then ends
    without any effect.
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
        _abandon(thread)
        thread.join(_SECONDS_TO_LEAVE)
        raise
    if errors:
        raise errors[0]
    if not results:
        _abandon(thread)
        raise CallTookTooLong(f"no answer within {seconds:g} s")
    return results[0]


def _abandon(thread: Thread) -> None:
    if thread.ident is not None:
        ident, error = ctypes.c_ulong(thread.ident), ctypes.py_object(_Abandoned)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, error)


def run_once_more(run: Callable[[], Result]) -> Result:
    """Return the result of `run()`, which calls a session.

    If a task refuses a request of the call because it has seen the request's number before, call `run` once
    more. Raises all other errors, and every error of the second call.
    """
    try:
        return run()
    except tf.errors.AbortedError as error:
        if _SAME_NUMBER not in str(error):
            raise
    return run()


def open_session(target: str, graph: tf.Graph, filters: list[str]) -> tf.compat.v1.Session:
    """Open a session that lasts until `close_in_background` or the end of the process. This does not wait.

    `target` is the address of the session's server, such as "grpc://10.0.0.1:2222". `filters` are the devices
    that the session may use; with [] it may use all. The session's first run waits for ever for the tasks of
    these devices.
    """
    session = v1.Session(target, graph=graph, config=runtime_config(filters=filters))
    _OPEN.add(session)
    return session


def runtime_config(
    threads: int | None = None, gpu_memory_fraction: float | None = None, filters: Sequence[str] = ()
) -> tf.compat.v1.ConfigProto:
    """Return the configuration for the trainer's servers and sessions.

    Threads and memory of a session only count if the session has no server, because a server's devices are
    made when the server starts. Idle threads do not spin, because spinning takes cores from other processes.

    On CPUs TensorFlow's graph optimizer (Grappler) only removes operations that nothing needs, and fuses a
    convolution or a product of matrices with its bias and activation: its other parts took most of the time
    of a task's first calls, and steps were no faster. On a GPU all parts are on, because they may choose a
    better layout for convolutions.

    Args:
        threads: the number of threads; None lets TensorFlow choose.
        gpu_memory_fraction: the share of each GPU's memory that is taken at the start; None takes memory as
            it is needed, and keeps it.
        filters: as in `open_session`.

    """
    count = threads or 0  # 0 lets TensorFlow choose
    pools = {"intra_op_parallelism_threads": count, "inter_op_parallelism_threads": count}
    config = v1.ConfigProto(**pools, device_filters=filters, experimental={"disable_thread_spinning": True})
    if not gpus.visible_devices(os.environ):
        _only_fuse(config.graph_options.rewrite_options)
    if gpu_memory_fraction is None:
        config.gpu_options.allow_growth = True
    else:
        config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
    return config


def _only_fuse(rewriting: RewriterConfig) -> None:
    """Turn off each part of Grappler that has a switch, except the remapper, which fuses operations."""
    for field in rewriting.DESCRIPTOR.fields:
        if field.enum_type is not None and field.enum_type.name == "Toggle":
            setattr(rewriting, field.name, RewriterConfig.OFF)
    rewriting.remapping = RewriterConfig.ON
    rewriting.memory_optimization = RewriterConfig.NO_MEM_OPT
    rewriting.meta_optimizer_iterations = RewriterConfig.ONE


def close_in_background(session: tf.compat.v1.Session) -> None:
    """Close `session` in another thread and return at once, because a task of the session may be gone."""

    def close() -> None:
        with suppress(tf.errors.OpError):
            session.close()
        _OPEN.discard(session)

    Thread(target=close, daemon=True).start()

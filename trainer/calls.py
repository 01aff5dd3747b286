"""Calls into TensorFlow that may never return, and how to leave them behind."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

import tensorflow as tf

Result = TypeVar("Result")


class CallTookTooLong(Exception):  # noqa: N818 - not an error of the program
    """TensorFlow did not answer in time."""


def call_within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function that TensorFlow may hold for ever, as when a ps is stopped but its port answers.

    Raises CallTookTooLong after `seconds`, the call stays behind in its thread. Raises what it raises.
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
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise CallTookTooLong(f"no answer within {seconds:g} s")
    return results[0]


def close_in_background(session: tf.compat.v1.Session) -> None:
    """Let a session go without waiting for a task that may be gone."""
    Thread(target=_close_quietly, args=(session,), daemon=True).start()


def _close_quietly(session: tf.compat.v1.Session) -> None:
    try:
        session.close()
    except tf.errors.OpError:
        return

"""Protects the program from the observer: errors end only the observation, and calls have a deadline."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_state = {"off": False}
# Called with the reason when an error ends the observation.
_when_lost: list[Callable[[str], object]] = []


def guarded(function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
    """Return `function` made safe: if it raises, it returns None instead, and the observation ends.

    The error is logged. After the observation has ended, all guarded functions return None without doing
    anything.
    """

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result | None:
        # Functions that Python still calls at its very end, such as `__del__`, cannot import any more.
        if _state["off"] or sys.is_finalizing():
            return None
        try:
            return function(*arguments, **named)
        except Exception as error:
            stop()
            why = (str(error).strip().splitlines() or [""])[0]
            what = f"{function.__name__}: {type(error).__name__}: {why}"
            say(f"its steps are not recorded from here on ({what})")
            for tell in _when_lost:
                with contextlib.suppress(Exception):
                    tell(f"the observation ended by an error ({what})")
            return None

    return call


def stop() -> None:
    """End the observation: from now on, guarded functions do nothing."""
    _state["off"] = True


def when_lost(tell: Callable[[str], object]) -> None:
    """Let `tell(reason)` be called if an error ends the observation; `stop` alone does not call it."""
    _when_lost.append(tell)


def say(text: str) -> None:
    """Write a line to standard error, the task's log; ignore errors."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # at Python's end there may be no stream
        sys.stderr.write(f"psfleet, which looks at this program: {text}\n")


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Return `function()`, called in another thread because it may hang in TensorFlow.

    Raises what the function raises, and TimeoutError after `seconds`. A call that takes too long stays in its
    thread, which does not keep the process alive.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]

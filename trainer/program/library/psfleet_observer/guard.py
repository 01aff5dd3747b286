"""What keeps the observer from the program: its errors are said and end it, its calls have an end."""

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


def guarded(function: Callable[Arguments, Result]) -> Callable[Arguments, Result | None]:
    """Return the function, which gives None where it raises, and from then on, as all guarded ones do."""

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result | None:
        # What Python still calls when it is about to end, such as `__del__`, can import nothing any more.
        if _state["off"] or sys.is_finalizing():
            return None
        try:
            return function(*arguments, **named)
        except Exception as error:
            stop()
            why = (str(error).strip().splitlines() or [""])[0]
            what = f"{function.__name__}: {type(error).__name__}: {why}"
            say(f"its steps are not recorded from here on ({what})")
            return None

    return call


def stop() -> None:
    """Look no more."""
    _state["off"] = True


def say(text: str) -> None:
    """Tell of this in the task's log."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # at the end there may be none
        sys.stderr.write(f"psfleet, which looks at this program: {text}\n")


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function that TensorFlow may hold for ever. Raises TimeoutError, and what the function raises.

    Where it takes too long it is left behind, in a thread that does not keep the process alive.
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

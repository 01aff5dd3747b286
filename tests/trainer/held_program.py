"""The trainer, held at a place until a file is there; or one that loses its ps there, as often as is said.

Started like the trainer, with the place (or several, separated by commas) before its flags, and the file or
how often.
"""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from trainer import __main__ as program
from trainer.coordination import bounded_calls
from trainer.coordination.start_barrier import Barrier
from trainer.engine.training import TrainingSession
from trainer.model.checkpoints import CheckpointFolder
from trainer.process.console import say
from trainer.process.stop_request import StopRequest
from trainer.task import server, worker
from trainer.task.chief import Chief

_PLACES: dict[str, Callable[..., object]] = {
    "step": TrainingSession.step,
    "create": TrainingSession.create,
    "line_up": Barrier.line_up,
    "end": Chief.end,
    "save": CheckpointFolder.write,
}
# That of others is their first one; a save before any step is the chief's before the run begins.
_HELD_CALL = {"step": 20, "save": 2}
NEVER = "never"
# The ledger's, and that of the steps.
_SESSIONS = 2


def program_at(place: str, until: Path | int | str) -> list[str]:
    """The program, as `Cluster.start` takes it: held until a file is there, or NEVER, or losing so often."""
    return [__file__, place, str(until)]


def held_at(place: str) -> str:
    """What it says once it is held."""
    return f"Held at {place}"


def _hold(place: str, until: str) -> None:
    say(held_at(place))
    if until == NEVER:
        threading.Event().wait()  # as in TensorFlow: nothing in Python ends this
    while not Path(until).exists():
        time.sleep(0.05)


def _put_before(place: str, wait_or_lose: Callable[[], None]) -> None:
    original = _PLACES[place]

    def at_place(*arguments: Any) -> object:  # noqa: ANN401 - of whatever is held
        wait_or_lose()
        return original(*arguments)

    owner = {"line_up": Barrier, "end": Chief, "save": CheckpointFolder}.get(place, TrainingSession)
    setattr(owner, original.__name__, at_place)


def _tell_open_sessions() -> None:
    """Say how many sessions are open in the end, when those that are being closed are."""
    finish = worker._Worker.finish

    def told_finish(*arguments: Any) -> int:  # noqa: ANN401
        deadline = time.monotonic() + 10
        while len(bounded_calls._OPEN) > _SESSIONS and time.monotonic() < deadline:
            time.sleep(0.05)
        say(f"Open sessions: {len(bounded_calls._OPEN)}")
        return finish(*arguments)

    worker._Worker.finish = told_finish  # type: ignore[method-assign, assignment]


def main(places: str, until: str) -> int:
    """Be the trainer."""
    StopRequest.__init__.__defaults__ = (1.0,)
    server._SECONDS_AFTER_STOP, server._GRACE_SECONDS = 2.0, 0.0

    def wait_or_lose(place: str, calls: Iterator[int]) -> None:
        call = next(calls)
        if not until.isdigit():
            if call == _HELD_CALL.get(place, call):
                _hold(place, until)
        elif call <= int(until):
            say(f"Lost at {place}")
            raise tf.errors.UnavailableError(None, None, "lost by the test")

    for place in places.split(","):
        if place in _PLACES:
            _put_before(place, partial(wait_or_lose, place, itertools.count(1)))
    _tell_open_sessions()
    return program.main(sys.argv[1:])


if __name__ == "__main__":
    os._exit(main(sys.argv.pop(1), sys.argv.pop(1)))

"""The trainer as a worker that keeps a pace. Started like the trainer, with the pace before its flags."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.psfleet.evidence.adversaries.pace import Pace, waiting_at
from trainer import __main__ as program
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, STOP_CODE
from trainer.engine.training import TrainingSession
from trainer.process.console import say
from trainer.process.stop_request import StopRequest

# Between two looks at the counters, at first and at most: each look takes some of the CPU.
_POLL_SECONDS, _MOST_POLL_SECONDS = 0.005, 0.1


def _keep(pace: Pace, worker: int) -> None:
    """Let every session of this process wait before each step until the pace allows it."""
    callable_for = TrainingSession.callable_for
    paced = _PacedWorker(pace, worker)
    initialise = StopRequest.__init__

    def noted(request: StopRequest, *arguments: float) -> None:
        initialise(request, *arguments)
        paced.requests.append(request)

    StopRequest.__init__ = noted  # type: ignore[method-assign, assignment]

    def paced_callable_for(session: TrainingSession, step: Sequence[object]) -> Callable[[], list[Any]]:
        run = callable_for(session, step)

        def wait_and_run() -> list[Any]:
            paced.wait(session)
            return run()

        return wait_and_run

    TrainingSession.callable_for = paced_callable_for  # type: ignore[method-assign, assignment]


class _PacedWorker:
    def __init__(self, pace: Pace, worker: int) -> None:
        self._pace, self._worker = pace, worker
        self._has_stopped = False
        # A worker that is to stop waits for nobody.
        self.requests: list[StopRequest] = []

    def wait(self, session: TrainingSession) -> None:
        has_told, seconds = False, _POLL_SECONDS
        while True:
            counters = session.counters()
            global_step, own = counters[GLOBAL_STEP], counters[FIRST_WORKER + self._worker]
            self._signal_itself(own)
            is_over = counters[STOP_CODE] or global_step >= session.last_step
            is_over = is_over or any(request.is_set() for request in self.requests)
            if is_over or self._pace.allows(own, global_step - own):
                return
            if not has_told:
                say(waiting_at(global_step))
                has_told = True
            time.sleep(seconds)
            seconds = min(2 * seconds, _MOST_POLL_SECONDS)

    def _signal_itself(self, own: int) -> None:
        if own + 1 == self._pace.kills_itself_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if own + 1 == self._pace.stops_itself_at and not self._has_stopped:
            self._has_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)


def _worker_of(flags: Sequence[str]) -> int:
    name = "--task_index="
    return next(int(flag.removeprefix(name)) for flag in flags if flag.startswith(name))


if __name__ == "__main__":
    _keep(Pace.from_json(sys.argv.pop(1)), _worker_of(sys.argv))
    os._exit(program.main(sys.argv[1:]))

"""A worker: it waits for the others, takes steps until the run is over, and leaves in good order."""

from __future__ import annotations

import math
import time
import traceback

import tensorflow as tf

from trainer.barrier import Barrier, Gathering
from trainer.calls import CallTookTooLong
from trainer.chief import Chief
from trainer.console import say
from trainer.departure import Departure
from trainer.end_barrier import EndBarrier
from trainer.exit_codes import PROGRAM
from trainer.failure import RunEnding, StopRequested, TaskFailure
from trainer.ledger import GLOBAL_STEP, Ledger, OwnPart
from trainer.models import REGISTRY
from trainer.notes import serving_note, worker_note
from trainer.peers import is_lost_connection
from trainer.replication import build_graph
from trainer.reporting import Progress
from trainer.steps import Steps
from trainer.summaries import test_scalars
from trainer.task import Task, ready
from trainer.training import TrainingSession

# A program that loses its ps again and again without a single step between is broken, not unlucky.
_LOSSES_WITHOUT_A_STEP = 5
_REASON_LINES = 6


def run_worker(task: Task) -> int:
    """Do a worker's whole work and return its exit code. Raises TaskFailure where it cannot even listen."""
    directory = task.options.run_directory
    progress = Progress(
        run_id=task.options.run_id,
        workers=task.cluster.workers,
        path=directory / "progress.json" if directory and task.cluster.is_chief else None,
    )
    progress.tell()
    target = task.join_cluster()
    if task.cluster.is_local:
        OwnPart(target, task.cluster).create(serving_note(task))
    ready(progress.status)
    barrier = Barrier(task, target, progress)
    departure = Departure(task, barrier, progress)
    try:
        worker = _Worker(task, target, barrier, progress)
        departure.steps, departure.chief = worker.steps, worker.chief
        worker.train()
        return departure.finish()
    except StopRequested:
        return departure.stop()
    except RunEnding as ending:
        return departure.follow(ending)
    except TaskFailure as failure:
        return departure.fail(failure)
    except Exception as error:  # whatever the program raises
        traceback.print_exc()
        return departure.fail(TaskFailure(PROGRAM, _in_short(error)))


class _Worker:
    """A worker that can train: its examples are loaded and its graph is built."""

    def __init__(self, task: Task, target: str, barrier: Barrier, progress: Progress) -> None:
        self._task, self._target, self._barrier, self._progress = task, target, barrier, progress
        settings = task.settings
        model = REGISTRY[settings.model]
        data = model.load(settings, task.cluster.workers)
        self._graph = build_graph(task, model, data)
        self.chief = Chief(task, self._graph, target, progress) if task.cluster.is_chief else None
        self.steps = Steps(task, self._graph, progress, self.chief)
        self._note = worker_note(task, _last_step(task, len(data.train)))

    def train(self) -> None:
        """Take steps until the last of the run, through losses of a ps."""
        losses, steps_at_loss = 0, -1
        while True:
            prepare = self.chief.prepare if self.chief else None
            gathering = self._barrier.wait(self._note, prepare, recovering=steps_at_loss >= 0)
            try:
                self._take_part(gathering)
                return
            except (tf.errors.OpError, CallTookTooLong) as error:
                losses = losses + 1 if self.steps.local_step == steps_at_loss else 1
                if not is_lost_connection(error) or losses > _LOSSES_WITHOUT_A_STEP:
                    raise
                self._recover(error)
            steps_at_loss = self.steps.local_step

    def _take_part(self, gathering: Gathering) -> None:
        self._graph.hear(gathering.served)
        prepared = None
        if self.chief is not None:
            self.chief.meet(gathering.ledger, gathering.worker_nonces)
            prepared = self.chief.take_session()
        session = prepared or self._graph.session(self._target)
        self._barrier.line_up(gathering.ledger)
        self.steps.enter(session, gathering.last_step)
        self._tell_of(gathering)
        self.steps.run()
        self._end(gathering.ledger, session)

    def _end(self, ledger: Ledger, session: TrainingSession) -> None:
        """Wait for the others' last steps, and read the model then; the chief also judges and saves it."""
        if self.chief is not None:
            self._progress.change("ending")
        steps, end = self.steps, EndBarrier(self._task, ledger, self._progress)
        began = time.monotonic()
        if end.wait_for_last_steps(steps.seconds / max(steps.local_step, 1)):
            began = time.monotonic()
            steps.read_fingerprint()
        if self.chief is None:
            end.need_the_ps_no_more()
            return
        seconds_to_read = time.monotonic() - began
        steps.look()
        metrics = self.chief.end(session, steps.counters[GLOBAL_STEP])
        steps.summaries.write(steps.counters[GLOBAL_STEP], test_scalars(metrics))
        end.wait_for_readers(seconds_to_read)

    def _tell_of(self, gathering: Gathering) -> None:
        global_step = self.steps.counters[GLOBAL_STEP]
        fields: dict[str, object] = {
            "ps_nonces": gathering.ps_nonces,
            "worker_nonces": gathering.worker_nonces,
            "waited_seconds": round(gathering.waited_seconds, 6),
            "global_step": global_step,
        }
        server = gathering.served.get(f"server{self._task.cluster.index}")
        if server is not None:
            fields["server_nonce"] = server["nonce"]
        self._task.records.write("peers_ready", fields)
        say(
            f"All tasks are there after {gathering.waited_seconds:.1f} s:"
            f" training from global step {global_step} to {gathering.last_step}."
        )
        self._progress.missing = ()
        self._progress.change("training")

    def _recover(self, error: Exception) -> None:
        reason = _in_short(error)
        say(f"A task that holds a part of the run was lost, connecting again: {reason}")
        self._task.records.write("recovering", {"reason": reason})
        self.steps.leave()
        self._barrier.drop_ledger()


def _last_step(task: Task, examples: int) -> int:
    """The last global step: as the settings say, or as many as let the workers read the examples so often.

    An asynchronous step reads one batch, the others one of each worker whose gradients go into it; all are
    taken to be of the chief's size.
    """
    settings = task.settings
    examples_a_step = settings.batch_size * settings.gradients_in_a_step(task.cluster.workers)
    return math.ceil(settings.epochs * examples / examples_a_step) or settings.steps


def _in_short(error: Exception) -> str:
    """What went wrong in a few lines; TensorFlow's errors say it first, and then where it comes from."""
    if not isinstance(error, tf.errors.OpError):
        return "\n".join(
            "".join(traceback.format_exception_only(error)).strip().splitlines()[-_REASON_LINES:]
        )
    text = str(error.message).partition("\nOriginal stack trace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip(" =") and "execution error" not in line]
    return "\n".join([f"{type(error).__name__}:", *lines[:_REASON_LINES]])

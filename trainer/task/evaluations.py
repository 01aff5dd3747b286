"""Evaluations during the run: the chief saves checkpoints for them, and a child process evaluates each.

The child (trainer/evaluator.py) shares nothing with the tasks but the folder with checkpoints. It writes its
results into records of its own, and answers the chief, which ends the run once the user's condition is met.
"""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import IO

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.stop_condition import condition_in
from trainer.coordination.running_task import RunningTask
from trainer.engine.training import TrainingSession
from trainer.process.console import say
from trainer.process.failure import TaskFailure
from trainer.task.saving import CheckpointSaver

_MOST_FAILURES = 3
_SECONDS_TO_END = 5.0


class Evaluations:
    """Lets a child process evaluate checkpoints during the run, every `evaluate_every_steps` global steps.

    If that is 0, or without a run directory, there are no evaluations.
    """

    def __init__(self, task: RunningTask, saver: CheckpointSaver) -> None:
        self._task, self._saver = task, saver
        self._directory = task.options.run_directory
        self._every = task.settings.evaluate_every_steps if self._directory else 0
        self._condition = condition_in(task.settings.as_dict())
        self._process: subprocess.Popen[str] | None = None
        self._reader = Thread()  # reads the child's lines
        # The lines that the child printed; an empty line means that the child has ended.
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._failures = 0
        self._steps_from = 0
        # Whether a checkpoint is being saved for the child; whether the child is evaluating a checkpoint.
        self._is_saved_for = self._evaluates = False
        # The global step of the evaluation that met the condition.
        self._met_at: int | None = None

    def start(self, global_step: int) -> None:
        """Count the steps until the next evaluation from `global_step`; start the child process if none runs.

        Call it whenever the variables were set. Without evaluations, or after three failures of children, no
        child is started.
        """
        self._steps_from, self._is_saved_for = global_step, False
        if self._met_at is not None and self._met_at > global_step:
            self._met_at = None  # the run goes on from an earlier model
        if self._every and self._process is None and self._failures < _MOST_FAILURES:
            self._start_child()

    def steps_left(self, global_step: int) -> float:
        """Return the global steps until an evaluation is due; 0 or less if one is due now.

        Return infinity if no evaluation can begin now: there is no child, it evaluates, a save is going on,
        or the user's condition is met.
        """
        is_over = self._met_at is not None
        if is_over or self._process is None or self._is_saved_for or self._evaluates or self._saver.is_saving:
            return math.inf
        return self._steps_from + self._every - global_step

    def work(self, session: TrainingSession, global_step: int) -> bool:
        """Save if an evaluation is due, pass saved checkpoints to the child, and print its answers.

        Return whether an evaluation has met the user's condition (`stop_when`); False without a condition. Do
        not wait for the child.

        Raises tf.errors.OpError if a ps is lost, and TaskFailure (`configuration`) if an evaluation lacks the
        metric of the condition.
        """
        while not self._answers.empty():
            if answer := self._answers.get():
                self._take(json.loads(answer))
            else:
                self._restart_child()
        if self._is_saved_for and not self._saver.is_saving:
            self._is_saved_for = False
            # The saved values may be of a later step than the chief knew: other workers took steps meanwhile.
            self._steps_from = max(self._steps_from, self._saver.saved_step)
            self._ask_child()
        elif self.steps_left(global_step) <= 0:
            self._steps_from, self._is_saved_for = global_step, True
            self._saver.save(session, global_step, whole=True)
        return self._met_at is not None

    def end(self) -> None:
        """Let the child end, print its last answers, and kill it if it has not ended after 5 s.

        Do nothing without a child.
        """
        child, self._process = self._process, None
        if child is None:
            return
        with suppress(OSError):
            self._input_of(child).close()
        try:
            child.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            if self._evaluates:
                say("The evaluation that went on at the end is given up.")
            child.kill()
            child.wait()
        self._reader.join()
        while not self._answers.empty():
            if answer := self._answers.get():
                self._show(json.loads(answer))

    def _start_child(self) -> None:
        command = [sys.executable, "-m", "trainer.evaluator", "--follow", str(self._directory)]
        # The child has a session of its own, so that Ctrl-C in a terminal reaches only the task. The child
        # ends when the task is gone.
        self._process = child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._reader = Thread(target=self._read, args=(child,), daemon=True)
        self._reader.start()

    def _read(self, child: subprocess.Popen[str]) -> None:
        for line in child.stdout or ():
            if line.endswith("\n"):  # a killed child may leave half a line
                self._answers.put(line)
        self._answers.put("")

    def _restart_child(self) -> None:
        """Start another child after a child has ended; after three such ends, go on without evaluations.

        An answer of a child sets this count of ends to 0.
        """
        child, self._process, self._evaluates = self._process, None, False
        if child is None:
            return
        self._failures += 1
        say(f"The process that evaluates has ended, exit code {child.wait()}; the lines above may say why.")
        if self._failures < _MOST_FAILURES:
            self._start_child()
        else:
            say(f"It has ended {self._failures} times: from now on this run is not evaluated.")

    def _ask_child(self) -> None:
        if self._process is None:
            return
        self._evaluates = True
        with suppress(OSError):  # the empty line among the answers shows the child's end
            self._input_of(self._process).write("newest\n")
            self._input_of(self._process).flush()

    def _take(self, answer: Mapping[str, object]) -> None:
        step, metrics = self._show(answer)
        # The child evaluates the newest checkpoint, which may be later than the checkpoint saved for the
        # evaluation.
        self._steps_from = max(self._steps_from, step)
        condition = self._condition
        if condition is None:
            return
        if condition.metric not in metrics:
            what = f"trainer_stop_when (--stop_when) is {str(condition)!r}"
            expected = f"expected a metric of the model: {', '.join(sorted(metrics))}"
            raise TaskFailure(CONFIGURATION, f"{what}; {expected}")
        if condition.is_met(metrics):
            say(f"The run ends: {condition} is met, {condition.metric} was {metrics[condition.metric]:.6g}.")
            self._met_at = step

    def _show(self, answer: Mapping[str, object]) -> tuple[int, Mapping[str, float]]:
        """Print an answer of the child and show it in `progress.json`; return (global step, {metric: value}).

        A metric that was not finite is nan. Raises TypeError if the answer has another form.
        """
        self._evaluates, self._failures = False, 0
        step, values = answer["global_step"], answer["metrics"]
        if not isinstance(step, int) or not isinstance(values, dict):
            raise TypeError(answer)
        metrics = {name: math.nan if value is None else float(value) for name, value in values.items()}
        self._task.progress.evaluation = {"global_step": step, "metrics": metrics}
        listing = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        say(f"Evaluated global step {step}: {listing}")
        return step, metrics

    @staticmethod
    def _input_of(child: subprocess.Popen[str]) -> IO[str]:
        if child.stdin is None:
            raise ValueError("the child has no standard input")
        return child.stdin

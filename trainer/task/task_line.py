"""The chief's line to tasks that work with files of rows on their own disks."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from trainer.contract.records import draw_nonce
from trainer.contract.task_names import CHIEF
from trainer.coordination.bounded_calls import close_in_background, open_session, run_once_more
from trainer.model.checkpoints import DamagedError
from trainer.process.cluster import Cluster
from trainer.task.tables.local_files import Fields, QuestionQueues

v1 = tf.compat.v1


class TaskLine:
    """A session to some tasks, by which the chief asks them questions and copies files among them.

    All these tasks must answer: TensorFlow waits for ever for a task that does not.
    """

    def __init__(self, cluster: Cluster, target: str, tasks: Sequence[str]) -> None:
        """Open the session through the chief's server at `target`, to `tasks`, the tasks' names.

        Only these can be asked; files can be copied among them and the chief.
        """
        self._devices = {
            task: cluster.device if cluster.is_local else cluster.device_of(task) for task in tasks
        }
        filters = cluster.filters(*self._devices.values(), cluster.device)
        self._devices[CHIEF] = cluster.device
        with tf.Graph().as_default() as self._graph:
            self._questions = {task: QuestionQueues(self._devices[task]) for task in tasks}
            self._from, self._to = v1.placeholder(tf.string, []), v1.placeholder(tf.string, [])
        self._copying: dict[tuple[str, str], tf.Operation] = {}
        self.session = open_session(target, self._graph, filters)

    def close(self) -> None:
        """Close the session without waiting for a task that is gone."""
        close_in_background(self.session)

    def ask(self, task: str, what: str, more: Fields) -> Fields:
        """Ask `task` to do `what`, a method of TableFiles without "_do_"; wait for the answer, and return it.

        The question also has the fields `more`. The wait has no limit. Raises DamagedError if the answer is
        an error, and tf.errors.OpError if the task is lost.
        """
        question, identity = self._questions[task], draw_nonce()
        self._run(question.ask, {question.text: json.dumps({"do": what, "id": identity, **more})})
        while True:
            answer: Fields = json.loads(self._run(question.take_answer))
            if answer.get("id") == identity:  # else the answer is for an earlier chief
                break
        if problem := answer.get("error"):
            raise DamagedError(f"{task}: {problem}")
        return answer

    def copy(self, task: str, path: str, to_task: str, to: str) -> None:
        """Copy a whole file: `task` reads it at the path `path`, and `to_task` writes it to the path `to`.

        Each path is on the host of its task; a file at `to` is replaced. Raises tf.errors.OpError, and its
        subclass NotFoundError if `task` has no such file.
        """
        if (task, to_task) not in self._copying:
            with self._graph.as_default():
                with tf.device(f"{self._devices[task]}/device:CPU:0"):
                    content = tf.raw_ops.ReadFile(filename=tf.identity(self._from))
                with tf.device(f"{self._devices[to_task]}/device:CPU:0"):
                    written = tf.raw_ops.WriteFile(filename=tf.identity(self._to), contents=content)
            self._copying[task, to_task] = written
        self._run(self._copying[task, to_task], {self._from: path, self._to: to})

    def _run(self, fetch: object, feeds: Mapping[tf.Tensor, object] | None = None) -> Any:  # noqa: ANN401
        return run_once_more(partial(self.session.run, fetch, feeds))

"""TensorBoard's event files, with the scalars of each worker and the chief's graph."""

import math
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from trainer.contract.task_names import CHIEF
from trainer.process.console import say

_Event = tf.compat.v1.Event
_SessionLog, _Summary = tf.compat.v1.SessionLog, tf.compat.v1.Summary

# A summary has about 150 bytes. The interval doubles after this many summaries, so that the longest run
# writes some MiB.
_SUMMARIES_BEFORE_DOUBLING = 10_000
_SECONDS_BETWEEN_TRIES = 60.0


def test_scalars(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with "test/" before each name, because training also has a `loss`."""
    return {f"test/{name}": value for name, value in metrics.items()}


class Summaries:
    """Writes a task's scalars to `directory/summaries/<task>/`, and to disk at once.

    Each process writes a file of its own. TensorBoard joins the files of a folder to one curve, and drops
    steps that a restore undid. If writing fails, a line is printed once, and the next try is a minute later;
    training goes on. The interval doubles after each 10,000 summaries.
    """

    def __init__(self, directory: Path | None, task: str, graph: tf.Graph, every: int) -> None:
        """Write to `directory` (None: write nothing) every `every` local steps (0: write nothing).

        If `task` is the chief, its first file also gets `graph`. No file is created yet.
        """
        self._folder = directory / "summaries" / task if directory is not None and every > 0 else None
        self._graph = graph if task == CHIEF else None
        self._every = every
        self._written = 0
        self._next_try = 0.0
        self._complained = False
        self._last_step: int | None = None
        self._writer: tf.io.TFRecordWriter | None = None

    def is_due(self, local_step: int) -> bool:
        """Return whether a summary is due at `local_step`; False if none is written."""
        return self._folder is not None and local_step % self._every == 0

    def steps_until_due(self, local_step: int) -> float:
        """Return the local steps from `local_step` to the next summary, at least 1; infinity without any."""
        return math.inf if self._folder is None else self._every - local_step % self._every

    def write(self, global_step: int, values: Mapping[str, float]) -> None:
        """Write the scalars {name: value} for this global step, whether due or not.

        Do nothing if no summaries are written, or within a minute after a failure.
        """
        if self._folder is None or time.monotonic() < self._next_try:
            return
        try:
            writer = self._writer or self._open(self._folder)
            if self._last_step is None or global_step < self._last_step:
                # A START makes TensorBoard drop what this task wrote earlier for this step and later steps.
                start = _SessionLog(status=_SessionLog.START)
                self._append(writer, _Event(step=global_step, session_log=start))
            scalars = [_Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._append(writer, _Event(step=global_step, summary=_Summary(value=scalars)))
            writer.flush()
        except (OSError, tf.errors.OpError) as error:
            # The file's last record may be incomplete, so the next try begins another file.
            self._complain(error)
            self.close()
            self._last_step = None
            self._next_try = time.monotonic() + _SECONDS_BETWEEN_TRIES
            return
        self._last_step = global_step
        self._written += 1
        if self._written % _SUMMARIES_BEFORE_DOUBLING == 0:
            self._every *= 2

    def close(self) -> None:
        """Close the file, if one is open; its content is on disk already."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except tf.errors.OpError as error:
                self._complain(error)

    def _open(self, folder: Path) -> tf.io.TFRecordWriter:
        folder.mkdir(parents=True, exist_ok=True)
        is_first = not any(folder.iterdir())
        # TensorBoard reads the files of a folder in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self._writer = writer = tf.io.TFRecordWriter(str(folder / name))
        self._append(writer, _Event(file_version="brain.Event:2"))
        if is_first and self._graph is not None:
            graph = self._graph.as_graph_def(add_shapes=True).SerializeToString()
            self._append(writer, _Event(graph_def=graph))
        return writer

    @staticmethod
    def _append(writer: tf.io.TFRecordWriter, event: tf.compat.v1.Event) -> None:
        event.wall_time = time.time()
        writer.write(event.SerializeToString())

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            reason = getattr(error, "message", None) or str(error)
            say(f"Summaries cannot be written, training goes on without: {self._folder}: {reason}")
        self._complained = True

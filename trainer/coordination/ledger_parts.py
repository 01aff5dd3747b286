"""The variables of the ledger, grouped by the task that holds them, and their operations in a graph.

Every process builds these variables with the same names on the same devices, so all processes share them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import tensorflow as tf

from trainer.host.task_traces import object_in
from trainer.process.cluster import Cluster

v1 = tf.compat.v1

COUNTERS = "psfleet/counters"
GLOBAL_STEP, STOP_CODE, FIRST_WORKER = 0, 1, 2

# Indices in a task's status, in the order of the fields of PartStatus.
READY, STOP, END, NONCE, LAST_STEP, BEAT = range(6)
# Indices in the counts of a worker that computes towers, which are on the worker's own device.
TOWERS, TOWER_GLOBAL_STEP = range(2)

# What a task writes about itself: {"nonce": .., "cluster": .., ..}, see task_notes.py.
Note = Mapping[str, object]


@dataclass(frozen=True)
class PartStatus:
    """The status of a task that serves, in the task's own variables; the defaults are an unknown status.

    Attributes:
        ready: True once the variables are set, so that clients and towers may begin.
        stop: the stop code: why the run is to end; 0 for none.
        end: the end code: the task itself is to end; 0 for none.
        nonce: the nonce that the chief drew for a ps; 0 before that, and for other tasks.
        last_step: the run's last global step, for workers that compute towers; else 0.
        beat: a number that changes while the chief is at work with the ps.
        stop_reason: why the run ends, in words; "" before that.
        note: the task's own note; {} if it has not written it.

    """

    ready: bool = False
    stop: int = 0
    end: int = 0
    nonce: int = 0
    last_step: int = 0
    beat: int = 0
    stop_reason: str = ""
    note: Note = field(default_factory=dict)


class TaskPart:
    """The variables with the status, the reason and the note of a task that serves."""

    def __init__(self, task: str, device: str) -> None:
        """Add the variables to the default graph, for a task ("ps0") on its device ("/job:ps/task:0")."""
        status = variable_on(f"status_{task}", device, [6], tf.int64)
        reason = variable_on(f"stop_reason_{task}", device, [], tf.string)
        note = variable_on(f"note_{task}", device, [], tf.string)
        self.initializers = [status.initializer, reason.initializer, note.initializer]
        self.text = v1.placeholder(tf.string, [])
        self._places = v1.placeholder(tf.int64, [None])
        self._values = v1.placeholder(tf.int64, [None])
        with tf.device(status.device):
            code = status.read_value()
            # The reason is written before the code and read after the code, so a reader of the code also gets
            # the reason.
            with tf.control_dependencies([code]):
                self.read = [code, reason.read_value(), note.read_value()]
            self.write_note = note.assign(self.text).op
            self.set_status = v1.scatter_update(status, self._places, self._values).op
            with tf.control_dependencies([reason.assign(self.text).op]):
                self.set_status_with_reason = v1.scatter_update(status, self._places, self._values).op

    def feeds(self, status: Mapping[int, int], reason: str = "") -> dict[tf.Tensor, object]:
        """Return {placeholder: value} for a run of `set_status` or `set_status_with_reason`.

        `status` is {index in the status: new value}, such as {READY: 1, NONCE: 5}; other numbers stay.
        `reason` is always fed: `set_status_with_reason` writes it even if it is "", `set_status` ignores it.
        """
        return {self._places: list(status), self._values: list(status.values()), self.text: reason}


class AttendancePart:
    """The variables on ps 0 alone (or in the process of a local run): notes, marks and counters."""

    def __init__(self, cluster: Cluster) -> None:
        workers, device = cluster.workers, cluster.ledger_devices[0]
        notes = [
            variable_on(f"attendance_worker{worker}", device, [], tf.string) for worker in range(workers)
        ]
        marks = variable_on("marks", device, [workers], tf.int64)
        counters = create_counters(cluster)
        self.initializers = [variable.initializer for variable in (*notes, marks, counters)]
        self.text = v1.placeholder(tf.string, [])
        self.worker = v1.placeholder(tf.int64, [])
        self.value = v1.placeholder(tf.int64, [])
        with tf.device(counters.device):
            self.notes = [note.read_value() for note in notes]
            self.marks = marks.read_value()
            self.write_notes = [note.assign(self.text).op for note in notes]
            self.set_mark = v1.scatter_update(marks, self.worker, self.value).op
            self.set_stop_code = v1.scatter_update(counters, STOP_CODE, self.value).op


class TowerPart:
    """The variables of a worker that computes towers: [towers, global step after the last], and a loss.

    The loss is the last tower's.
    """

    def __init__(self, task: str, device: str) -> None:
        """Add the variables to the default graph; checkpoints leave them out."""
        self.counts = variable_on(f"towers_{task}", device, [2], tf.int64, v1.GraphKeys.LOCAL_VARIABLES)
        self.loss = variable_on(f"tower_loss_{task}", device, [], tf.float32, v1.GraphKeys.LOCAL_VARIABLES)
        self.initializers = [self.counts.initializer, self.loss.initializer]
        with tf.device(self.counts.device):
            self.read = [self.counts.read_value(), self.loss.read_value()]


def create_counters(cluster: Cluster) -> tf.Variable:
    """Create and return the counters on ps 0: [global step, stop code, steps of worker 0, ...].

    They are in the default graph. In a local run, the process itself has them.
    """
    name, device = COUNTERS.rpartition("/")[2], cluster.ledger_devices[0]
    return variable_on(name, device, [FIRST_WORKER + cluster.workers], tf.int64)


def read_status(values: tuple[list[int], bytes, bytes]) -> PartStatus:
    """Return the status in `values`, which are the results of a run of `TaskPart.read`."""
    status, reason, note = values
    ready, stop, end, nonce, last_step, beat = (int(number) for number in status)
    reason_in_words = reason.decode(errors="replace")
    return PartStatus(bool(ready), stop, end, nonce, last_step, beat, reason_in_words, object_in(note))


def variable_on(
    name: str,
    device: str,
    shape: list[int],
    dtype: tf.DType,
    collection: str = v1.GraphKeys.GLOBAL_VARIABLES,
) -> tf.Variable:
    """Create the resource variable psfleet/`name`, whose initializer sets 0; it is not trained.

    Processes share it by name and device.

    If `device` is "", the variable is on the CPU of the current `tf.device`. `collection` is the graph's
    collection to which it is added; checkpoints leave out LOCAL_VARIABLES.
    """
    with tf.device(f"{device}/device:CPU:0"):
        return v1.get_variable(
            f"psfleet/{name}",
            shape=shape,
            dtype=dtype,
            initializer=v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
            collections=[collection],
        )

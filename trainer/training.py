"""A worker's graph and its session: a step, its printed values, evaluation, initial and restored values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from trainer.checkpoints import Checkpoint
from trainer.cluster import Cluster
from trainer.data import Data, Examples, batches
from trainer.exit_codes import CONFIGURATION
from trainer.failure import TaskFailure
from trainer.ledger import (
    COUNTERS,
    FIRST_WORKER,
    GLOBAL_STEP,
    STOP_CODE,
    close_in_background,
    create_counters,
)
from trainer.models.model import Devices, Model, ModelContext
from trainer.settings import TrainingSettings

v1 = tf.compat.v1

_OPTIMIZERS = {"sgd": v1.train.GradientDescentOptimizer, "adam": v1.train.AdamOptimizer}
_EVALUATION_BATCH = 1000


@dataclass(frozen=True)
class StepResult:
    """One step: its loss, the global step before, and the counters of ps 0 after."""

    loss: float
    global_step_before: int
    counters: tuple[int, ...]

    @property
    def global_step(self) -> int:
        """The global step after."""
        return self.counters[GLOBAL_STEP]


class TrainingGraph:
    """Variables on the ps by turns, everything else on this worker; all sessions of a process share it."""

    def __init__(self, cluster: Cluster, settings: TrainingSettings, model: Model, data: Data) -> None:
        """Build it."""
        self.cluster, self.settings, self.model, self.data = cluster, settings, model, data
        seed = settings.seed + cluster.index
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(seed)
            self.graph = graph
            self.counters = create_counters(len(cluster.worker_hosts))
            worker = f"/job:worker/task:{cluster.index}"
            ps = tuple(f"/job:ps/task:{task}" for task in range(len(cluster.ps_hosts)))
            self.context = ModelContext(settings, data, Devices(ps, worker))
            setter = v1.train.replica_device_setter(
                worker_device=worker, cluster=tf.train.ClusterSpec(cluster.jobs)
            )
            with v1.device(setter):
                dataset, self.dataset_feeds = batches(data.train, settings.batch_size, seed)
                iterator = v1.data.make_initializable_iterator(dataset)
                features, labels = iterator.get_next()
                self.iterator_initializer = iterator.initializer
                self.model_variables = model.create_variables(self.context)
                self._build_step(features, labels)
                self._build_evaluation()
                self.watched = dict(model.watched(self.model_variables))
            self.variables = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            self.initializers = [variable.initializer for variable in self.variables]
            self.assignments = {
                variable.op.name: (placeholder, variable.assign(placeholder).op)
                for variable in self.variables
                for placeholder in [v1.placeholder(variable.dtype, variable.shape)]
            }

    def _build_step(self, features: tf.Tensor, labels: tf.Tensor) -> None:
        name = self.model.optimizer_name(self.settings)
        optimizer = _OPTIMIZERS[name](self.model.learning_rate(self.settings))
        loss = self.model.loss(self.context, self.model_variables, features, labels)
        gradients = optimizer.compute_gradients(loss, var_list=list(self.model_variables))
        applied = optimizer.apply_gradients(gradients)
        one_step = np.zeros(FIRST_WORKER + len(self.cluster.worker_hosts), np.int64)
        one_step[[GLOBAL_STEP, FIRST_WORKER + self.cluster.index]] = 1
        with tf.device(self.counters.device):
            before = self.counters.read_value()[GLOBAL_STEP]
            with tf.control_dependencies([applied, before]):
                after = self.counters.assign_add(one_step, read_value=True)
        self.read_counters = self.counters.read_value()
        self.step = [loss, before, after]

    def _build_evaluation(self) -> None:
        test = self.data.test
        self.test_features = v1.placeholder(tf.float32, [None, *test.features.shape[1:]])
        self.test_labels = v1.placeholder(tf.as_dtype(test.labels.dtype), [None])
        self.metrics = dict(
            self.model.metrics(self.context, self.model_variables, self.test_features, self.test_labels)
        )

    def session(self, target: str) -> TrainingSession:
        """A session to the ps and this worker. All ps must answer: TensorFlow waits for them for ever."""
        return TrainingSession(self, target)


class TrainingSession:
    """What a worker does with its graph while the ps are there. Every method may raise tf.errors.OpError."""

    def __init__(self, graph: TrainingGraph, target: str) -> None:
        """Connect, and start this worker's batches."""
        self._graph = graph
        filters = ["/job:ps", f"/job:worker/task:{graph.cluster.index}"]
        self.session = v1.Session(target, graph=graph.graph, config=v1.ConfigProto(device_filters=filters))
        self.session.run(graph.iterator_initializer, graph.dataset_feeds)
        self._step = self.session.make_callable(graph.step)

    def close(self) -> None:
        """Let the session go; never waits for a ps that is gone."""
        close_in_background(self.session)

    def step(self) -> StepResult:
        """Take one batch and apply its gradients."""
        loss, before, counters = self._step()
        return StepResult(float(loss), int(before), tuple(int(count) for count in counters))

    def counters(self) -> tuple[int, ...]:
        """[global step, stop code, steps of worker 0, ...] as they are now."""
        return tuple(int(count) for count in self.session.run(self._graph.read_counters))

    def watched(self) -> dict[str, float]:
        """The values that the model wants to be seen in its step lines."""
        if not self._graph.watched:
            return {}
        return {name: float(value) for name, value in self.session.run(self._graph.watched).items()}

    def initialise(self) -> None:
        """Give every variable its first value; the counters start at 0."""
        self.session.run(self._graph.initializers)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set every variable to the checkpoint's value, without the stop code of the run that saved it.

        Raises TaskFailure of class `configuration` where the checkpoint is of another model or cluster.
        """
        feeds, assignments = {}, []
        for name, (placeholder, assignment) in self._graph.assignments.items():
            value = checkpoint.values.get(name)
            if value is None or value.shape != tuple(placeholder.shape):
                found = "nothing" if value is None else f"shape {value.shape}"
                raise TaskFailure(
                    CONFIGURATION,
                    f"checkpoint {checkpoint.path} holds {found} for {name}, this run needs shape"
                    f" {tuple(placeholder.shape)}: it is of another model or number of workers;"
                    " take the settings it was saved with, or another run directory",
                )
            feeds[placeholder] = value.copy()
            if name == COUNTERS:
                feeds[placeholder][STOP_CODE] = 0
            assignments.append(assignment)
        self.session.run(assignments, feeds)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """The model's metrics over these examples, a mean weighted by the size of each piece."""
        graph = self._graph
        totals = dict.fromkeys(graph.metrics, 0.0)
        for start in range(0, len(examples), _EVALUATION_BATCH):
            piece = slice(start, start + _EVALUATION_BATCH)
            features, labels = examples.features[piece], examples.labels[piece]
            feeds = {graph.test_features: features, graph.test_labels: labels}
            for name, value in self.session.run(graph.metrics, feeds).items():
                totals[name] += float(value) * len(features) / len(examples)
        return totals

"""What every replication has in common: a worker's graph, and its session to the ps.

How a step is made is a replication engine: a subclass of `TrainingGraph` that builds its operations, and,
where one call into TensorFlow is not all of a step, one of `TrainingSession` that takes it. asynchronous.py
is the plainest, replication.py names all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import close_in_background, open_session, run_once_more
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, Note, create_counters
from trainer.engine.gradient_check import GradientCheck, GradientFit, Lesson, batch_of
from trainer.engine.optimizers import Gradients, Optimizers
from trainer.engine.spread import create_on_ps
from trainer.engine.wire import Wire
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.data import Data, Examples, batches, seed_and_shard
from trainer.model.evaluation import Evaluation
from trainer.model.fingerprint import FingerprintOperations
from trainer.model.models.model import Devices, Model, ModelContext
from trainer.model.pieces import CutVariable, join_pieces
from trainer.process.cluster import Cluster

v1 = tf.compat.v1


@dataclass(frozen=True)
class StepResult:
    """One step of this worker: its loss, the global step before, and the counters of ps 0 after.

    `waiting_seconds`: how long the step waited for other workers; None where that is not known.
    `global_step_read`: when its variables were read. Where that was before this worker's own last step was
    counted, `global_step_before` is that of the count.
    """

    loss: float
    global_step_before: int
    counters: tuple[int, ...]
    waiting_seconds: float | None = None
    global_step_read: int | None = None


class TrainingGraph(ABC):
    """Variables spread over the ps, everything else on this worker; all sessions of a process share it.

    An engine finds here, when its `build_step` is called: `model_variables`, `optimizers`, `counters` (what
    they count is said in ledger.py), `read_counters`, `context`, `learn` and `next_batch`. What it
    creates in the collection of global variables is initialised, saved and restored with the model.

    Attributes:
        step: the loss, what `apply_and_count` gives, and what else a step runs.
        waiting_seconds: of every step, as in StepResult.

    """

    step: Sequence[object]
    waiting_seconds: float | None = None

    def __init__(self, cluster: Cluster, settings: TrainingSettings, model: Model, data: Data) -> None:
        self.cluster, self.settings, self.model, self.data = cluster, settings, model, data
        self.context = self.context_on(cluster.device)
        # What starts the batches of a session, and what to feed to it.
        self.iterator_starts: list[tuple[tf.Operation, dict[tf.Tensor, object]]] = []
        # Called once in a process, with the graphs as TensorFlow executed the first step.
        self.tell_partitions: Callable[[Sequence[tf.compat.v1.GraphDef]], None] | None = None
        self._lessons: list[Lesson] = []
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(settings.seed + cluster.index)
            self.graph = graph
            self.counters = create_counters(cluster)
            self.read_counters = self.counters.read_value()
            with self.placed_on(cluster.device):
                self.model_variables = create_on_ps(model, self.context)
                dtype = tf.as_dtype(settings.wire_dtype)
                self._wire = Wire(self.model_variables, model.travels_alone, dtype)
                name = model.optimizer_name(settings)
                self.optimizers = Optimizers(name, model.learning_rate(settings, cluster.workers))
                self.build_step()
                # Of an asynchronous worker's steps in a row the first, of a client each worker's.
                self.gradient_checks = [
                    GradientCheck(model, self.model_variables, lesson, given)
                    for lesson, given in zip(self._lessons, self.given(), strict=False)
                ]
                self.evaluation = Evaluation(model, self.context, self.model_variables)
                self.watched = dict(model.watched(model.values_of(self.model_variables)))
            held = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            self.saved_parameters = [variable for variable in held if variable is not self.counters]
            self.initializers = [variable.initializer for variable in held]
            cut = [variable for variable in self.model_variables if isinstance(variable, CutVariable)]
            self.variables = join_pieces(held, cut)
            self.fingerprint = FingerprintOperations(self.variables, self.counters)
            self.restore_operation = RestoreOperation(self.variables)

    @abstractmethod
    def build_step(self) -> None:
        """Add `step`; called once, while the graph is built, with this worker's devices."""

    def given(self) -> Sequence[Gradients]:
        """Of each `learn`, in their order, the gradients where they are applied; the first are enough."""
        return [list(self.optimizers.given.values())]

    def session(self, target: str) -> "TrainingSession":
        """A session to all that this worker's steps need, which must answer: TensorFlow waits for ever."""
        return TrainingSession(self, target)

    def hear(self, served: Mapping[str, Note]) -> None:  # noqa: B027 - most replications need not know
        """Be told, before each session, what the tasks that serve this client say of themselves."""

    @contextmanager
    def placed_on(self, worker_device: str) -> Iterator[None]:
        """Place what is built inside: variables on the ps, operations on this worker."""
        ps = len(self.cluster.ps_devices)
        # The variables of a ps lie in its host's memory, whatever GPUs it may see: each step reads and writes
        # them over the network, which goes through that memory. And every task's graph must say the same of a
        # variable: TensorFlow would choose for each graph anew, and one on a GPU is not the one on the CPU.
        setter = v1.train.replica_device_setter(ps, "/job:ps/device:CPU:0", worker_device)
        with v1.device(setter or worker_device):
            yield

    def context_on(self, worker_device: str) -> ModelContext:
        """What the model's functions are told where their operations go to this worker."""
        return ModelContext(self.settings, self.data, Devices(self.cluster.ps_devices, worker_device))

    def next_batch(self, worker: int, batch_size: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Features and labels of a worker's next batch, from an iterator that each session starts.

        Where it is read is for the caller to say.
        """
        return self.next_batches(worker, batch_size, 1)[0]

    def next_batches(
        self, worker: int, batch_size: int | tf.Tensor, count: int
    ) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
        """As `next_batch`, so many, read one after the other."""
        seed, shard = seed_and_shard(self.settings, self.cluster.workers, worker)
        with tf.device("/device:CPU:0"):  # which reads for a GPU, too
            dataset, feeds = batches(self.data.train_of(worker), batch_size, seed, shard)
            iterator = v1.data.make_initializable_iterator(dataset)
            self.iterator_starts.append((iterator.initializer, feeds))
            read: list[tuple[tf.Tensor, tf.Tensor]] = []
            for _ in range(count):
                with tf.control_dependencies([labels for _, labels in read[-1:]]):
                    read.append(iterator.get_next())
            return read

    def apply_and_count(
        self,
        gradients: Gradients,
        workers: Sequence[int],
        after: Sequence[tf.Tensor] = (),
        pulled_after: Sequence[tf.Tensor] = (),
    ) -> tf.Tensor:
        """Apply gradients and count that for these workers: [the global step before, *the counters after].

        Counted on ps 0 once each ps has applied its own; one tensor, for each that travels is a call. What is
        read for it is read `after` these; the global step before as the variables were, `pulled_after` these.
        """
        one_step = np.zeros(self.counters.shape, np.int64)
        one_step[[GLOBAL_STEP, *(FIRST_WORKER + worker for worker in workers)]] = 1
        with tf.control_dependencies(pulled_after), tf.device(self.counters.device):
            before = self.counters.read_value()[GLOBAL_STEP : GLOBAL_STEP + 1]
        with tf.control_dependencies(after), tf.device(self.counters.device):
            # What an optimizer reads of its own, as the powers of beta, is of this step, too.
            applied = self.optimizers.apply(gradients)
            with tf.control_dependencies([*applied, before]):
                counters = self.counters.assign_add(one_step, read_value=True)
            return tf.concat([before, counters], axis=0)

    def learn(
        self,
        context: ModelContext,
        batch: tuple[tf.Tensor, tf.Tensor],
        weight: float | tf.Tensor = 1.0,
        after: Sequence[tf.Tensor] = (),
    ) -> tuple[tf.Tensor, Gradients]:
        """The loss of a batch, and its gradients times `weight`; the variables are read `after` these."""
        values = self._wire.pull(after)
        # What is not packed is read by the model.
        with tf.control_dependencies([] if self._wire.packs_all else after):
            loss = self.model.loss(context, values, *batch)
        self._lessons.append(Lesson(context, values, batch, loss, weight))
        return loss, self._wire.push(v1.gradients(loss, values, tf.cast(weight, loss.dtype)))


class TrainingSession:
    """What a worker does with its graph while the ps are there. Every method may raise tf.errors.OpError.

    Attributes:
        last_step: of the run; set before the first step.
        awaited: the workers that `step` waits for, while it waits for others.

    """

    last_step: int
    awaited: Sequence[int] = ()

    def __init__(self, graph: TrainingGraph, target: str) -> None:
        self._graph = graph
        self.session = open_session(target, graph.graph, graph.cluster.filters_to_train)
        try:
            self._step = self.callable_for(graph.step)
            self._checks = [check.in_session(self.session) for check in graph.gradient_checks]
            for start, feeds in graph.iterator_starts:
                self.session.run(start, feeds)
        except BaseException:
            self.close()
            raise

    def step(self, raise_if_stopping: Callable[[], None]) -> StepResult:  # noqa: ARG002 - TensorFlow waits
        """Take one batch and let the model learn from it, as this replication does.

        Where that means to wait for others, say in `awaited` for whom, and call `raise_if_stopping` now and
        then, for the watchdog too: it raises StopRequested once this task has been told to stop, and
        TaskFailure (`peers_missing`) where that takes too long. Whoever waits also looks at the counters:
        once they hold a stop code or the last step it returns, and the caller acts on the counters returned.
        """
        loss, (before, *counters), *_ = self._step()
        counts = tuple(int(count) for count in counters)
        return StepResult(float(loss), int(before), counts, self._graph.waiting_seconds)

    def steps(self, most: int, raise_if_stopping: Callable[[], None]) -> Sequence[StepResult]:  # noqa: ARG002
        """Take up to so many steps, each as `step` does; where steps are for others to join in, one."""
        return [self.step(raise_if_stopping)]

    def callable_for(self, step: Sequence[object]) -> Callable[[], list[Any]]:
        """What runs the operations of a step; the process's first run also tells where they were executed."""
        session, graph = self.session, self._graph
        plain: Callable[[], list[Any]] = session.make_callable(step)

        def run() -> list[Any]:
            tell, graph.tell_partitions = graph.tell_partitions, None
            if tell is None:
                return run_once_more(plain)
            options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
            values: list[Any] = session.run(step, options=options, run_metadata=metadata)
            tell(metadata.partition_graphs)
            return values

        return run

    def begin(self) -> None:
        """Start what runs beside the steps. The variables are set, and all tasks have lined up."""

    def end(self) -> None:
        """Stop and join what `begin` has started, on every way out and whether or not the ps still answer.

        Called before the chief saves for the last time, and before a session whose ps was lost is closed.
        """

    def held_still(self) -> AbstractContextManager[object]:
        """Keep the chief's own part beside the steps from changing the variables while they are saved."""
        return nullcontext()

    def close(self) -> None:
        """Let the session go; never waits for a ps that is gone."""
        close_in_background(self.session)

    def counters(self) -> tuple[int, ...]:
        """[global step, stop code, steps of worker 0, ...] as they are now."""
        return tuple(int(count) for count in self.session.run(self._graph.read_counters))

    def fingerprint(self) -> tuple[str, int] | None:
        """The model's fingerprint and its global step; None where a step was made meanwhile."""
        return self._graph.fingerprint.run(self.session)

    def check_gradients(self, number: int) -> dict[str, GradientFit]:
        """Worker -> how its gradients fit its loss, on the batch of this number; nothing is changed by it."""
        graph, cluster = self._graph, self._graph.cluster
        workers = range(len(self._checks)) if len(self._checks) > 1 else [cluster.index]
        size = graph.settings.batch_size
        return {
            f"worker{worker}": check(batch_of(graph.data.train_of(worker), size, number))
            for worker, check in zip(workers, self._checks, strict=True)
        }

    def watched(self) -> dict[str, float]:
        """The values that the model wants to be seen in its step lines."""
        return {name: float(value) for name, value in self.session.run(self._graph.watched).items()}

    def initialise(self) -> None:
        """Give every variable its first value; the counters start at 0."""
        self.session.run(self._graph.initializers)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set every variable as RestoreOperation.run does."""
        self._graph.restore_operation.run(self.session, checkpoint)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """The model's metrics over these examples."""
        return self._graph.evaluation.run(self.session, examples)

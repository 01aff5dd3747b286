"""The base classes of the replication engines: a worker's graph, and its session to the ps.

An engine is a subclass of `TrainingGraph` that builds the operations of a training step. If a step takes more
than one call into TensorFlow, the engine also has a subclass of `TrainingSession`. asynchronous.py is the
simplest engine; replication.py lists all of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.contract.step_windows import Read
from trainer.coordination.bounded_calls import close_in_background, open_session, run_once_more
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, Note, create_counters
from trainer.engine.accumulators import AnySent, SentRows
from trainer.engine.gradient_check import GradientCheck, GradientFit, WorkerLoss
from trainer.engine.local_steps import Batch, LocalSteps, take_local_steps
from trainer.engine.optimizers import AnyGradients, Gradient, Optimizers
from trainer.engine.row_optimizers import Rates, require_fitting_settings
from trainer.engine.spread import create_on_ps
from trainer.engine.wire import Wire
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.data import Data, Examples, Source, batches, seed_and_shard
from trainer.model.evaluation import Evaluation
from trainer.model.fingerprint import FingerprintOperations
from trainer.model.models.model import Devices, Model, ModelContext, Table, Values
from trainer.model.pieces import InPieces, TableVariable, holder_of, join_pieces
from trainer.model.tables import LookUp, Tables
from trainer.process.cluster import Cluster

v1 = tf.compat.v1
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class StepResult:
    """The result of one step of this worker: its loss, the global step before, the counters of ps 0 after.

    `waiting_seconds` is how long the step waited for other workers; None if that is unknown.
    `read` says when the variables were read. If that was before this worker's previous step was counted,
    `global_step_before` is the global step of that count.
    """

    loss: float
    global_step_before: int
    counters: tuple[int, ...]
    waiting_seconds: float | None = None
    read: Read | None = None


class BatchesStart(NamedTuple):
    """The operation that starts a worker's batches in a session, and its feeds.

    `steps_before` is fed with the worker's steps that the model has: the batches follow theirs.
    """

    worker: int
    operation: tf.Operation
    feeds: dict[tf.Tensor, object]
    steps_before: tf.Tensor


class TrainingGraph(ABC):
    """A worker's graph: variables are spread over the ps, everything else is on this worker.

    All sessions of a process share it. An engine's `build_step` can use `model_variables`, `optimizers`,
    `counters` (described in ledger.py), `read_counters`, `context`, `learn` and `next_batch`. The variables
    that it creates in the collection of global variables are initialised, saved and restored with the model.

    Attributes:
        step: the loss, the result of `apply_and_count`, and what else a step runs.
        waiting_seconds: the value for every step's StepResult.

    """

    step: Sequence[object]
    waiting_seconds: float | None = None
    # What the last step that was built looked up.
    _looked_up: LookUp

    def __init__(self, cluster: Cluster, settings: TrainingSettings, model: Model, data: Data) -> None:
        self.cluster, self.settings, self.model, self.data = cluster, settings, model, data
        self.context = self.context_on(cluster.device)
        self.batches_starts: list[BatchesStart] = []
        # Called once in a process, with the partitions that TensorFlow executed in the first step.
        self.report_partitions: Callable[[Sequence[tf.compat.v1.GraphDef]], None] | None = None
        self._worker_losses: list[WorkerLoss] = []
        self._local_steps: LocalSteps | None = None
        with tf.Graph().as_default() as graph:
            v1.set_random_seed(settings.seed + cluster.index)
            self.graph = graph
            self.counters = create_counters(cluster)
            self.read_counters = self.counters.read_value()
            with self.placed_on(cluster.device):
                self.model_variables = create_on_ps(model, self.context)
                dtype = tf.as_dtype(settings.wire_dtype)
                self._wire = Wire(self.model_variables, model.travels_alone, dtype)
                self.tables = Tables(model, self.context, dtype)
                name = model.optimizer_name(settings)
                require_fitting_settings(settings, name, model.name, has_tables=bool(self.tables.variables))
                rate = model.learning_rate(settings, cluster.workers)
                damped = settings.staleness == "damped"
                rates = Rates(rate, settings.l1_regularization)
                self.optimizers = Optimizers(name, rates, settings.push_every, damped=damped)
                self.build_step()
                # An asynchronous worker has several steps in a row: only the first is tested. A client
                # tests the tower of each worker.
                learned = [*self.model_variables, *self.tables.variables]
                self.gradient_checks = [
                    GradientCheck(learned, of_worker, applied)
                    for of_worker, applied in zip(self._worker_losses, self.applied_gradients(), strict=False)
                ]
                self.evaluation = Evaluation(model, self.context, self.model_variables, self.tables)
                self.watched = dict(model.watched(model.values_of(self.model_variables)))
            held = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            self.saved_parameters = [variable for variable in held if variable is not self.counters]
            self.first_values = self.tables.first_values()
            self.variables = join_pieces(held, [its for its in learned if isinstance(its, InPieces)])
            of_tables = [its for its in self.variables if isinstance(its, TableVariable)]
            marks = [its for of_part in self.optimizers.marks for its in of_part.variables]
            self.rows = [*(piece for table in of_tables for piece in table.pieces), *marks]
            self.fingerprint = FingerprintOperations(self.variables, self.counters)
            self.restore_operation = RestoreOperation(self.variables)

    @abstractmethod
    def build_step(self) -> None:
        """Add `step`; this is called once, while the graph is built, with this worker's devices in force."""

    def applied_gradients(self) -> Sequence[AnyGradients]:
        """Return the gradients of each `learn` as they are applied, in the order of the calls.

        An engine may leave out the later calls.
        """
        return [list(self.optimizers.first_applied.values())]

    def session(self, target: str) -> "TrainingSession":
        """Return a session to the tasks that this worker's steps need.

        All of these must answer: TensorFlow waits for ever for one that does not.
        """
        return TrainingSession(self, target)

    def use_notes(self, served: Mapping[str, Note]) -> None:  # noqa: B027 - most engines need no notes
        """Take the notes of the tasks that serve this client; this is called before each session."""

    @contextmanager
    def placed_on(self, worker_device: str) -> Iterator[None]:
        """Place the variables that are built in this context on the ps, and operations on this worker."""
        ps = len(self.cluster.ps_devices)
        # Variables are in the memory of a ps's host, even if it has a GPU: each step reads and writes them
        # over the network, which goes through that memory. All tasks' graphs must also agree on a variable's
        # device: TensorFlow would choose one for each graph, and a variable on a GPU is another than the one
        # of the same name on the CPU.
        setter = v1.train.replica_device_setter(ps, "/job:ps/device:CPU:0", worker_device)
        with v1.device(setter or worker_device):
            yield

    def context_on(self, worker_device: str) -> ModelContext:
        """Return the context for the model's functions if their operations go to this worker."""
        return ModelContext(self.settings, self.data, Devices(self.cluster.ps_devices, worker_device))

    def next_batch(self, worker: int, batch_size: int | tf.Tensor) -> Sequence[Batch]:
        """Return the batches of a worker's next step, from an iterator that each session starts."""
        return self.next_batches(worker, batch_size, 1)[0]

    def next_batches(self, worker: int, batch_size: int | tf.Tensor, steps: int) -> Sequence[Sequence[Batch]]:
        """Return the batches of so many steps as `next_batch` does, which are read one after the other."""
        seed, shard = seed_and_shard(self.settings, self.cluster.workers, worker)
        size = self.settings.push_every
        with tf.device("/device:CPU:0"):  # datasets run on the CPU, even if a GPU computes the step
            before = v1.placeholder(tf.int64, [])
            had = before * size * batch_size
            dataset, feeds = batches(self.data.train_of(worker), batch_size, seed, shard, had)
            iterator = v1.data.make_initializable_iterator(dataset)
            self.batches_starts.append(BatchesStart(worker, iterator.initializer, feeds, before))
            read: list[Batch] = []
            for _ in range(steps * size):
                with tf.control_dependencies([labels for _, labels in read[-1:]]):
                    read.append(iterator.get_next())
            return [read[first : first + size] for first in range(0, len(read), size)]

    def apply_and_count(
        self,
        gradients: AnyGradients,
        workers: Sequence[int],
        after: Sequence[tf.Tensor] = (),
        pulled_after: Sequence[tf.Tensor] = (),
    ) -> tf.Tensor:
        """Apply gradients and count a step for these workers: [the global step before, *the counters after].

        ps 0 counts once each ps has applied its gradients. The result is a single tensor, because each tensor
        that travels costs a call. The counters and the optimizers' own numbers are read `after` these
        tensors; the global step before is read after `pulled_after`, as the model's variables are.
        """
        one_step = np.zeros(self.counters.shape, np.int64)
        one_step[[GLOBAL_STEP, *(FIRST_WORKER + worker for worker in workers)]] = 1
        with tf.control_dependencies(pulled_after), tf.device(self.counters.device):
            before = self.counters.read_value()[GLOBAL_STEP : GLOBAL_STEP + 1]
        with tf.control_dependencies(after), tf.device(self.counters.device):
            # An optimizer's own numbers, such as the powers of beta, must be those of this step, too.
            applied = self.optimizers.apply(gradients)
            with tf.control_dependencies([*applied, before]):
                counters = self.counters.assign_add(one_step, read_value=True)
            return tf.concat([before, counters], axis=0)

    def learn(
        self,
        context: ModelContext,
        batches: Sequence[Batch],
        weight: float | tf.Tensor = 1.0,
        after: Sequence[tf.Tensor] = (),
        *,
        pulls: bool = True,
    ) -> tuple[tf.Tensor, AnyGradients]:
        """Return the mean loss of a step's batches, and the mean of their gradients times `weight`.

        The variables are read `after` these tensors. A step that pulls none goes on with the parameters of
        the last one, in its local steps.
        """
        loss, gradients = self._differentiate(context, batches, weight, after, pulls=pulls)
        of_variables, of_rows = self._divided(gradients)
        return loss, [*self._wire.push(of_variables), *self._looked_up.push(of_rows)]

    def learn_flat(
        self, context: ModelContext, batches: Sequence[Batch], after: Sequence[tf.Tensor] = ()
    ) -> tuple[tf.Tensor, Sequence[AnySent]]:
        """Return the same, but the gradients as they lie on the ps, packed."""
        loss, gradients = self._differentiate(context, batches, 1.0, after, pulls=True)
        of_variables, of_rows = self._divided(gradients)
        rows = [SentRows(its, part) for its, part in self._looked_up.push(of_rows)]
        return loss, [*self._wire.send(of_variables), *rows]

    def _differentiate(
        self,
        context: ModelContext,
        batches: Sequence[Batch],
        weight: float | tf.Tensor,
        after: Sequence[tf.Tensor],
        *,
        pulls: bool,
    ) -> tuple[tf.Tensor, Sequence[Gradient | None]]:
        """Return the loss, and the gradients of the model's variables and of the rows that were looked up."""
        # A model with tables has one batch in a step.
        self._looked_up = looked_up = self.tables.look_up(context, batches[0][0], after)

        def loss_at(point: Values, batch: Batch) -> tf.Tensor:
            values, rows = self._divided(point)
            return self.model.loss(context, [*values, *looked_up.values(rows)], *batch)

        def loss_of(point: Values, batch: Batch) -> tf.Tensor:
            # The model itself reads the variables that are not packed.
            with tf.control_dependencies([] if self._wire.packs_all else after):
                return loss_at(point, batch)

        def move(values: Values, gradients: Sequence[Gradient | None]) -> Values:
            return self.optimizers.local_step(values, gradients, weight / self.settings.push_every)

        before = self._local_steps
        pulled = self._wire.pull(after) if pulls or before is None else move(before.points[-1], before.last)
        point = [*pulled, *looked_up.rows]
        self._local_steps = steps = take_local_steps(loss_of, move, point, batches, weight)
        self._worker_losses.append(WorkerLoss(context, loss_at, steps.points, batches, steps.loss, weight))
        of_variables, of_rows = self._divided(steps.gradients)
        return steps.loss, [*of_variables, *looked_up.summed(of_rows)]

    def _divided(self, values: Sequence[_Value]) -> tuple[Sequence[_Value], Sequence[_Value]]:
        """Return the part for the model's variables, and that for the rows of its tables."""
        return values[: len(self.model_variables)], values[len(self.model_variables) :]


def sizes_of_calls(most: int, of_a_pull: int = 1) -> Sequence[int]:
    """Return the numbers of steps that one call may take, in rising order.

    TensorFlow prepares a graph of its own for each, which costs as much as many steps. So only the most is
    offered, a third of it, a third of that and so on: first of whole pulls, then of the steps within a pull.
    """
    whole = [of_a_pull * pulls for pulls in _thirds(most // of_a_pull)]
    return sorted({*whole, *_thirds(of_a_pull)})


def _thirds(most: int) -> Sequence[int]:
    """Return a number, a third of it, and so on down to 1."""
    return [most, *_thirds((most + 1) // 3)] if most else []


class TrainingSession:
    """A worker's session, which lasts until a ps is lost. Every method may raise tf.errors.OpError.

    Attributes:
        last_step: the run's last global step; it is set before the first step.
        awaited: the indices of the workers for which `step` waits, while it waits.

    """

    last_step: int
    awaited: Sequence[int] = ()

    def __init__(self, graph: TrainingGraph, target: str) -> None:
        self._graph = graph
        self.session = open_session(target, graph.graph, graph.cluster.filters_to_train)
        try:
            self._step = self.callable_for(graph.step)
            self._checks = [check.in_session(self.session) for check in graph.gradient_checks]
            self.start_batches([0] * graph.counters.shape[0])
        except BaseException:
            self.close()
            raise

    def step(self, raise_if_stopping: Callable[[], None]) -> StepResult:  # noqa: ARG002 - TensorFlow waits
        """Take one training step, as this replication does, and return its result.

        An engine that waits for other workers puts them into `awaited`, and regularly calls
        `raise_if_stopping`, which also notifies the watchdog. That raises StopRequested once this task was
        told to stop, and TaskFailure (`peers_missing`) if the wait takes too long. The engine also reads the
        counters while it waits, and returns once they hold a stop code or the last step. The caller acts on
        the counters of the result.
        """
        loss, (before, *counters), *_ = self._step()
        counts = tuple(int(count) for count in counters)
        return StepResult(float(loss), int(before), counts, self._graph.waiting_seconds)

    def steps(self, most: int, raise_if_stopping: Callable[[], None]) -> Sequence[StepResult]:  # noqa: ARG002
        """Take up to `most` steps as `step` does; a replication whose steps need other workers takes one."""
        return [self.step(raise_if_stopping)]

    def callable_for(self, step: Sequence[object]) -> Callable[[], list[Any]]:
        """Return a function that runs a step's operations; the first run of a process reports partitions."""
        session, graph = self.session, self._graph
        plain: Callable[[], list[Any]] = session.make_callable(step)

        def run() -> list[Any]:
            report, graph.report_partitions = graph.report_partitions, None
            if report is None:
                return run_once_more(plain)
            options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
            values: list[Any] = session.run(step, options=options, run_metadata=metadata)
            report(metadata.partition_graphs)
            return values

        return run

    def start_batches(self, counters: Sequence[int]) -> None:
        """Let each worker's batches follow those of its steps that the model has, by the counters."""
        for start in self._graph.batches_starts:
            steps = {start.steps_before: counters[FIRST_WORKER + start.worker]}
            self.session.run(start.operation, {**start.feeds, **steps})

    def begin(self) -> None:
        """Start the threads that run beside the steps, once the variables are set and all tasks are ready."""

    def end(self) -> None:
        """Stop and join the threads that `begin` started, even if the ps do not answer.

        This is called before the chief saves for the last time, and before a session with a lost ps is
        closed.
        """

    def updates_paused(self) -> AbstractContextManager[object]:
        """Return a context in which the chief's own threads do not change the variables, to save them."""
        return nullcontext()

    def close(self) -> None:
        """Close the session without waiting for a ps that is gone."""
        close_in_background(self.session)

    def counters(self) -> tuple[int, ...]:
        """Return the current counters: [global step, stop code, steps of worker 0, ...]."""
        return tuple(int(count) for count in self.session.run(self._graph.read_counters))

    def fingerprint(self) -> tuple[str, int] | None:
        """Return the model's fingerprint and its global step; None if a step changed the model meanwhile."""
        return self._graph.fingerprint.run(self.session)

    def sampled_batches(self, number: int) -> dict[str, list[Examples]]:
        """Return worker -> its batches of step `number`, to sample its gradients on."""
        graph, cluster = self._graph, self._graph.cluster
        workers = range(len(self._checks)) if len(self._checks) > 1 else [cluster.index]
        size, count = graph.settings.batch_size, graph.settings.push_every
        firsts = range(number * count * size, (number + 1) * count * size, size)
        return {
            f"worker{worker}": [graph.data.train_of(worker).read(first, size) for first in firsts]
            for worker in workers
        }

    def check_gradients(self, batches: Mapping[str, Sequence[Examples]]) -> dict[str, GradientFit]:
        """Return worker -> how its gradients fit its loss on its batches; the model is not changed."""
        checked = zip(batches.items(), self._checks, strict=True)
        return {worker: check(its) for (worker, its), check in checked}

    @property
    def tables(self) -> Sequence[tuple[Table, int]]:
        """The model's tables, each with its first row in the fused table."""
        return self._graph.tables.places

    def ids_of(self, batch: Examples) -> list[npt.NDArray[np.int64]]:
        """Return the rows of each table that a batch needs; nothing is read of the tables."""
        return self._graph.evaluation.ids(self.session, batch.features)

    def watched(self) -> dict[str, float]:
        """Return the values of the model's watched tensors."""
        return {name: float(value) for name, value in self.session.run(self._graph.watched).items()}

    def ps_fingerprints(self, ps: Collection[str]) -> dict[str, str]:
        """Return for each of these ps the fingerprint of what it holds."""
        return self._graph.fingerprint.run_ps(self.session, ps)

    def initialise(self) -> None:
        """Give every variable its initial value; the counters start at 0."""
        graph = self._graph
        self.session.run([its.initializer for its in [graph.counters, *graph.saved_parameters, *graph.rows]])
        self.set_first_values()

    def set_first_values(self) -> None:
        """Give each row of a table, which is 0, its first value."""
        self.session.run(self._graph.first_values)

    def create(self, ps: Collection[str] | None = None) -> bool:
        """Create all variables, or those of these ps but the counters, to be restored; rows are 0.

        Rows that are there already stay, because their ps may have no room for them twice, and the restore
        sets each; return whether there were none.
        """
        graph = self._graph
        rows = [its for its in graph.rows if ps is None or holder_of(its) in ps]
        held = [its for its in graph.saved_parameters if ps is None or holder_of(its) in ps]
        here = self._here(rows)
        counters = [graph.counters] if ps is None else []
        missing = [its for its in (*counters, *held, *rows) if str(its.op.name) not in here]
        self.session.run([its.initializer for its in missing])
        return not here

    def _here(self, variables: Sequence[tf.Variable]) -> set[str]:
        """Return the names of those of these variables that are there, in their own shapes."""
        asked = []
        for its in variables:
            with self._graph.graph.as_default(), tf.device(its.device):
                asked.append((its, its.is_initialized(), tf.raw_ops.VariableShape(input=its.handle)))
        are_there = self.session.run([is_there for _, is_there, _ in asked])
        there = [(its, shape) for (its, _, shape), is_there in zip(asked, are_there, strict=True) if is_there]
        shapes = self.session.run([shape for _, shape in there])
        pairs = zip((its for its, _ in there), shapes, strict=True)
        return {str(its.op.name) for its, shape in pairs if its.shape.as_list() == shape.tolist()}

    def restore(self, checkpoint: Checkpoint, ps: Collection[str] | None = None) -> None:
        """Set all variables, or those on these ps, to their values in it, as RestoreOperation.run does."""
        self._graph.restore_operation.run(self.session, checkpoint, ps)

    def evaluate(self, examples: Source) -> dict[str, float]:
        """Return the model's metrics over these examples."""
        return self._graph.evaluation.run(self.session, examples)

    def sample(self) -> dict[str, float]:
        """Return some numbers of the model's outputs for the first test examples."""
        return self._graph.evaluation.sample(self.session, self._graph.data.test)

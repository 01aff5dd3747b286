"""The base classes of the replication engines: a worker's graph, and its session to the ps.

An engine is a subclass of `TrainingGraph` that builds the operations of a training step. If a step takes more
than one call into TensorFlow, the engine also has a subclass of `TrainingSession`. asynchronous.py is the
simplest engine; replication.py lists all engines.
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
from trainer.engine.accumulators import SentGradients, SentRowGradients
from trainer.engine.gradient_check import GradientCheck, GradientFit, WorkerLoss
from trainer.engine.local_steps import Batch, LocalSteps, take_local_steps
from trainer.engine.optimizers import AnyGradients, Gradient, Optimizers
from trainer.engine.spread import create_on_ps
from trainer.engine.tables.optimizers import Rates, require_fitting_settings
from trainer.engine.wire import Wire
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.data import Data, Examples, Source, batches, seed_and_shard
from trainer.model.evaluation import Evaluation
from trainer.model.fingerprint import FingerprintOperations
from trainer.model.models.model import Devices, Model, ModelContext, Table, Values
from trainer.model.pieces import InPieces, TableVariable, holder_of, join_pieces
from trainer.model.tables.lookup import LookUp, Tables
from trainer.process.cluster import Cluster

v1 = tf.compat.v1
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class StepResult:
    """The result of one training step of this worker.

    Attributes:
        loss: the step's loss.
        global_step_before: the global step that was read with the variables; if they were read before this
            worker's previous step was counted (see `read`), the global step of that count.
        counters: the counters of ps 0 after the step: [global step, stop code, steps of worker 0, ...].
        waiting_seconds: how long the step waited for other workers; None if unknown.
        read: when the variables were read; None means at `global_step_before`.

    """

    loss: float
    global_step_before: int
    counters: tuple[int, ...]
    waiting_seconds: float | None = None
    read: Read | None = None


class BatchesStart(NamedTuple):
    """The operation that starts the batches of worker number `worker` in a session, with its feeds.

    `steps_before` is a placeholder for the number of the worker's steps that the model contains already; the
    batches begin after the batches of these steps.
    """

    worker: int
    operation: tf.Operation
    feeds: dict[tf.Tensor, object]
    steps_before: tf.Tensor


class TrainingGraph(ABC):
    """A worker's graph: the variables are spread over the ps, everything else is on this worker.

    All sessions of a process share the graph. An engine's `build_step` can use `model_variables`,
    `optimizers`, `counters` (see ledger.py), `read_counters`, `context`, `learn` and `next_batch`. Variables
    that it creates in the collection of global variables are initialised, saved and restored with the model.

    Attributes:
        step: the tensors that a step fetches: the loss, the result of `apply_and_count`, then anything else.
        waiting_seconds: the value of `waiting_seconds` in every StepResult.
        variables: the variables that checkpoints have, each whole; tables and optimizer slots included.
        saved_parameters: the global variables and pieces in the graph, without the counters.
        rows: the parts of tables and of their slots, and the marks of their rows.

    """

    step: Sequence[object]
    waiting_seconds: float | None = None
    # The rows that the step built last looks up.
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
                # An asynchronous worker has several steps in a row, of which only the first is tested. An
                # in-graph client tests the tower of each worker.
                learned = [*self.model_variables, *self.tables.variables]
                self.gradient_checks = [
                    GradientCheck(learned, worker_loss, applied)
                    for worker_loss, applied in zip(
                        self._worker_losses, self.applied_gradients(), strict=False
                    )
                ]
                self.evaluation = Evaluation(model, self.context, self.model_variables, self.tables)
                self.watched = dict(model.watched(model.values_of(self.model_variables)))
            created = graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            self.saved_parameters = [variable for variable in created if variable is not self.counters]
            self.first_values = self.tables.first_values()
            cut = [variable for variable in learned if isinstance(variable, InPieces)]
            self.variables = join_pieces(created, cut)
            tables = [variable for variable in self.variables if isinstance(variable, TableVariable)]
            marks = [variable for own in self.optimizers.marks for variable in own.variables]
            self.rows = [*(piece for table in tables for piece in table.pieces), *marks]
            self.fingerprint = FingerprintOperations(self.variables, self.counters)
            self.restore_operation = RestoreOperation(self.variables)

    @abstractmethod
    def build_step(self) -> None:
        """Set `step`; called once, while the graph is built, inside this worker's `tf.device`."""

    def applied_gradients(self) -> Sequence[AnyGradients]:
        """Return, for each call of `learn` in order, pairs (gradient as it is applied, variable).

        The gradients of later calls may be missing: the base class returns only the first call's gradients.
        """
        return [list(self.optimizers.first_applied.values())]

    def session(self, target: str) -> "TrainingSession":
        """Return a new session that reaches the tasks which this worker's steps need.

        `target` is the address of the session's server. All these tasks must answer: TensorFlow waits for
        ever for a task that does not.
        """
        return TrainingSession(self, target)

    def use_notes(self, notes: Mapping[str, Note]) -> None:  # noqa: B027 - most engines need no notes
        """Use the notes, {task: note}, of the tasks that serve this client, for the next session.

        The base class does nothing.
        """

    @contextmanager
    def placed_on(self, worker_device: str) -> Iterator[None]:
        """Return a context that places new variables on the ps in turn, and operations on `worker_device`.

        Without ps, variables are on `worker_device`, too.
        """
        ps = len(self.cluster.ps_devices)
        # Variables are in the memory of a ps's host, even if the host has a GPU: each step reads and
        # writes them over the network, which goes through that memory. All tasks' graphs must also
        # agree on a variable's device: otherwise TensorFlow would choose a device in each graph, and
        # two variables of the same name, one on a GPU and one on the CPU, are different variables.
        setter = v1.train.replica_device_setter(ps, "/job:ps/device:CPU:0", worker_device)
        with v1.device(setter or worker_device):
            yield

    def context_on(self, worker_device: str) -> ModelContext:
        """Return the context for the model's functions, with operations on `worker_device`."""
        return ModelContext(self.settings, self.data, Devices(self.cluster.ps_devices, worker_device))

    def next_batch(self, worker: int, batch_size: int | tf.Tensor) -> Sequence[Batch]:
        """Return the tensors of the batches for the next step of worker number `worker`.

        There are `push_every` batches, each a pair (features, labels). Each session starts their iterator.
        """
        return self.next_batches(worker, batch_size, 1)[0]

    def next_batches(self, worker: int, batch_size: int | tf.Tensor, steps: int) -> Sequence[Sequence[Batch]]:
        """Return what `next_batch` returns, for each of the next `steps` steps, in order."""
        seed, shard = seed_and_shard(self.settings, self.cluster.workers, worker)
        size = self.settings.push_every
        with tf.device("/device:CPU:0"):  # datasets run on the CPU, even if a GPU computes the step
            before = v1.placeholder(tf.int64, [])
            skip = before * size * batch_size
            dataset, feeds = batches(self.data.train_of(worker), batch_size, seed, shard, skip)
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
        """Apply gradients, count one step for each of `workers` (indices), and return int64 [1 + counters].

        The result is [the global step before, *the counters after]. It is one tensor, because each tensor
        that travels costs a call. ps 0 counts once all ps have applied their gradients. The counters and the
        optimizers' own numbers are read once the tensors `after` exist; the global step before is read once
        `pulled_after` exist, like the model's variables.
        """
        one_step = np.zeros(self.counters.shape, np.int64)
        one_step[[GLOBAL_STEP, *(FIRST_WORKER + worker for worker in workers)]] = 1
        with tf.control_dependencies(pulled_after), tf.device(self.counters.device):
            before = self.counters.read_value()[GLOBAL_STEP : GLOBAL_STEP + 1]
        with tf.control_dependencies(after), tf.device(self.counters.device):
            # An optimizer's own numbers, such as the powers of beta, must also be read only after `after`.
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
        """Return (mean loss of a step's batches, pairs (mean gradient times `weight`, variable)).

        The gradients are on the variables' ps, ready for `apply_and_count`. The variables are read once the
        tensors `after` exist. A step with `pulls=False` reads no variables; it goes on with the worker's copy
        from the step built before it.
        """
        loss, gradients = self._differentiate(context, batches, weight, after, pulls=pulls)
        of_variables, of_rows = self._split_values(gradients)
        return loss, [*self._wire.push(of_variables), *self._looked_up.push(of_rows)]

    def learn_flat(
        self, context: ModelContext, batches: Sequence[Batch], after: Sequence[tf.Tensor] = ()
    ) -> tuple[tf.Tensor, Sequence[SentGradients]]:
        """Return (mean loss of a step's batches, their mean gradients as flat tensors on the variables' ps).

        The variables are read once the tensors `after` exist.
        """
        loss, gradients = self._differentiate(context, batches, 1.0, after, pulls=True)
        of_variables, of_rows = self._split_values(gradients)
        rows = [SentRowGradients(own, part) for own, part in self._looked_up.push(of_rows)]
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
        """Return (mean loss, gradients of the model's variables and then of its tensors of table rows).

        The gradients are on the worker, times `weight`; None for a variable on which the loss does not
        depend. The other arguments are as in `learn`.
        """
        # A model with tables has one batch in a step.
        self._looked_up = looked_up = self.tables.look_up(context, batches[0][0], after)

        def loss_at(point: Values, batch: Batch) -> tf.Tensor:
            values, rows = self._split_values(point)
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
        of_variables, of_rows = self._split_values(steps.gradients)
        return steps.loss, [*of_variables, *looked_up.sum_gradients(of_rows)]

    def _split_values(self, values: Sequence[_Value]) -> tuple[Sequence[_Value], Sequence[_Value]]:
        """Return (the values for the model's variables, the values for the rows of the model's tables)."""
        return values[: len(self.model_variables)], values[len(self.model_variables) :]


def sizes_of_calls(most: int, steps_of_a_pull: int = 1) -> Sequence[int]:
    """Return the numbers of steps that one call may take, in rising order; the last is `most`.

    `most` must be a multiple of `steps_of_a_pull`. TensorFlow prepares a graph for each size, which costs as
    much as many steps. So there are only `most`, a third (rounded), a third of that, and so on: first in
    whole pulls, then within one pull.

    Examples: sizes_of_calls(10) -> [1, 3, 10]; sizes_of_calls(12, 4) -> [1, 4, 12]
    """
    whole = [steps_of_a_pull * pulls for pulls in _thirds(most // steps_of_a_pull)]
    return sorted({*whole, *_thirds(steps_of_a_pull)})


def _thirds(most: int) -> Sequence[int]:
    """Return a number, a third of it (rounded), a third of that, and so on down to 1; [] for 0.

    Example: _thirds(10) -> [10, 3, 1]
    """
    return [most, *_thirds((most + 1) // 3)] if most else []


class TrainingSession:
    """A worker's session, which lasts until a ps is lost. Every method may raise tf.errors.OpError.

    Attributes:
        last_step: the run's last global step; the caller sets it before the first step.
        awaited: the indices of the workers for which `step` is waiting; empty if it is not waiting.

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

    def step(self, note_wait: Callable[[], None]) -> StepResult:  # noqa: ARG002 - TensorFlow waits
        """Take one training step, as this replication does, and return its result.

        An engine that waits for other workers puts them into `awaited`, and regularly calls `note_wait`. That
        function notifies the watchdog; it raises StopRequested once this task was told to stop, and
        TaskFailure (`peers_missing`) if the wait takes too long. While it waits, the engine also reads the
        counters, and returns once they hold a stop code or the last step. The caller acts on the counters of
        the result.
        """
        loss, (before, *counters), *_ = self._step()
        counts = tuple(int(count) for count in counters)
        return StepResult(float(loss), int(before), counts, self._graph.waiting_seconds)

    def steps(self, most: int, note_wait: Callable[[], None]) -> Sequence[StepResult]:  # noqa: ARG002
        """Take at least one and at most `most` steps as `step` does; return each step's result, in order.

        This base class takes one step.
        """
        return [self.step(note_wait)]

    def callable_for(self, step: Sequence[object]) -> Callable[[], list[Any]]:
        """Return a function that runs `step`, a list of tensors, and returns a list of their values.

        The first call of any of these functions in this process also writes the device report, if there is
        one.
        """
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
        """Start each worker's batches; the first one follows the batches of the worker's steps in `counters`.

        `counters` are [global step, stop code, steps of worker 0, ...].
        """
        for start in self._graph.batches_starts:
            steps = {start.steps_before: counters[FIRST_WORKER + start.worker]}
            self.session.run(start.operation, {**start.feeds, **steps})

    def begin(self) -> None:
        """Start the threads that run beside the steps; this base class has none.

        Called once the variables are set and all tasks are ready.
        """

    def end(self) -> None:
        """Tell the threads that `begin` started to end, even if the ps do not answer; do not wait for them.

        Called before the chief saves for the last time, and before a session with a lost ps is closed.
        """

    def updates_paused(self) -> AbstractContextManager[object]:
        """Return a context in which this session does not change the variables, so that the chief can save.

        Other workers may still change them, except in synchronous training. This base class does nothing.
        """
        return nullcontext()

    def close(self) -> None:
        """Close the session without waiting for a ps that is gone."""
        close_in_background(self.session)

    def counters(self) -> tuple[int, ...]:
        """Return the current counters: [global step, stop code, steps of worker 0, ...]."""
        return tuple(int(count) for count in self.session.run(self._graph.read_counters))

    def fingerprint(self) -> tuple[str, int] | None:
        """Return (fingerprint of the model, global step); None if a step changed the model meanwhile."""
        return self._graph.fingerprint.run(self.session)

    def sampled_batches(self, number: int) -> dict[str, list[Examples]]:
        """Return {worker: `push_every` batches of its examples}: sample number `number` of gradients.

        Sample 0 has the first examples in their fixed order, which is not the order of training; sample 1 has
        the next examples. After the last example comes the first. The keys are the workers whose gradients
        this process computes, such as "worker0".
        """
        graph, cluster = self._graph, self._graph.cluster
        workers = range(len(self._checks)) if len(self._checks) > 1 else [cluster.index]
        size, count = graph.settings.batch_size, graph.settings.push_every
        firsts = range(number * count * size, (number + 1) * count * size, size)
        return {
            f"worker{worker}": [graph.data.train_of(worker).read(first, size) for first in firsts]
            for worker in workers
        }

    def check_gradients(self, batches: Mapping[str, Sequence[Examples]]) -> dict[str, GradientFit]:
        """Return {worker: how well the worker's gradients fit its loss} for {worker: batches of a step}.

        `sampled_batches` returns such batches. The model is not changed.
        """
        pairs = zip(batches.items(), self._checks, strict=True)
        return {worker: check(own) for (worker, own), check in pairs}

    @property
    def tables(self) -> Sequence[tuple[Table, int]]:
        """Pairs (table, number of its first row in its fused table), in the order of the model's tables."""
        return self._graph.tables.places

    def ids_of(self, batch: Examples) -> list[npt.NDArray[np.int64]]:
        """Return, for each of the model's tables in their order, the rows that each example of a batch needs.

        Each array is int64 [batch, ids of an example]. The tables are not read.
        """
        return self._graph.evaluation.ids(self.session, batch.features)

    def watched(self) -> dict[str, float]:
        """Return {name: value} of the tensors in the model's `watched`."""
        return {name: float(value) for name, value in self.session.run(self._graph.watched).items()}

    def ps_fingerprints(self, ps: Collection[str]) -> dict[str, str]:
        """Return {ps: fingerprint of the parameters on the ps} for the given ps.

        A ps that holds no parameters is left out.
        """
        return self._graph.fingerprint.run_ps(self.session, ps)

    def initialise(self) -> None:
        """Give every variable its initial value; the counters start at 0."""
        graph = self._graph
        variables = [graph.counters, *graph.saved_parameters, *graph.rows]
        self.session.run([variable.initializer for variable in variables])
        self.set_first_values()

    def set_first_values(self) -> None:
        """Give each row of the tables its first value; all rows must be 0 before."""
        self.session.run(self._graph.first_values)

    def create(self, ps: Collection[str] | None = None) -> bool:
        """Create the variables on the given ps (default: all ps, and the counters), to be restored.

        Table rows that exist with the right shape stay, because their ps may have no memory for a second
        copy, and the restore sets all rows. All others are reset. Return True if no table rows existed (or
        there are no tables), so that all rows are 0 now; else False.
        """
        graph = self._graph
        rows = [variable for variable in graph.rows if ps is None or holder_of(variable) in ps]
        others = [variable for variable in graph.saved_parameters if ps is None or holder_of(variable) in ps]
        existing = self._existing(rows)
        counters = [graph.counters] if ps is None else []
        missing = [each for each in (*counters, *others, *rows) if str(each.op.name) not in existing]
        self.session.run([variable.initializer for variable in missing])
        return not existing

    def _existing(self, variables: Sequence[tf.Variable]) -> set[str]:
        """Return the names of the given variables that exist on their ps with the expected shape."""
        queries = []
        for variable in variables:
            with self._graph.graph.as_default(), tf.device(variable.device):
                shape = tf.raw_ops.VariableShape(input=variable.handle)
                queries.append((variable, variable.is_initialized(), shape))
        exist = self.session.run([query for _, query, _ in queries])
        existing = [
            (variable, shape) for (variable, _, shape), exists in zip(queries, exist, strict=True) if exists
        ]
        shapes = self.session.run([shape for _, shape in existing])
        pairs = zip((variable for variable, _ in existing), shapes, strict=True)
        return {
            str(variable.op.name) for variable, shape in pairs if variable.shape.as_list() == shape.tolist()
        }

    def restore(self, checkpoint: Checkpoint, ps: Collection[str] | None = None) -> None:
        """Set the variables on the given ps (default: all), as `RestoreOperation.run` does."""
        self._graph.restore_operation.run(self.session, checkpoint, ps)

    def evaluate(self, examples: Source) -> dict[str, float]:
        """Return {name: result} of the model over `examples`, as `Evaluation.run` does."""
        return self._graph.evaluation.run(self.session, examples)

    def sample(self) -> dict[str, float]:
        """Return {"<output>[<index>]": value}, as `Evaluation.sample` does, for the first test examples."""
        return self._graph.evaluation.sample(self.session, self._graph.data.test)

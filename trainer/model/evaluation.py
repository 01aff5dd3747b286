"""A model's metrics over examples, in a task that trains and in the evaluator, which does not train."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import runtime_config
from trainer.coordination.ledger_parts import COUNTERS, FIRST_WORKER
from trainer.host.wording import first_of
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.data import Source
from trainer.model.fingerprint import fingerprint_of
from trainer.model.models import find_model
from trainer.model.models.model import Devices, Model, ModelContext, Values
from trainer.model.pieces import AnyVariable, TableVariable, name_of
from trainer.model.tables.checkpoint_rows import PartOfRows, SavedRows
from trainer.model.tables.lookup import Tables
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# Examples in one evaluation call; a whole test set may not fit into memory.
EVALUATION_BATCH = 1000
# For this many of the first test examples, each client of a run and the evaluator record the model's outputs;
# of each output, at most this many numbers.
_SAMPLE_EXAMPLES, _SAMPLE_NUMBERS = 10, 32
_CPU = "/device:CPU:0"
_NAMES_SHOWN = 5


class Evaluation:
    """The operations that evaluate a model and compute its outputs, in the default graph."""

    def __init__(
        self, model: Model, context: ModelContext, variables: Sequence[AnyVariable], tables: Tables
    ) -> None:
        one = context.data.test.read(0, 1)
        self._features = v1.placeholder(one.feature_type, [None, *one.features.shape[1:]])
        self._labels = v1.placeholder(tf.as_dtype(one.labels.dtype), [None, *one.labels.shape[1:]])
        values = values_for(model, context, variables, tables, self._features)
        self._model, self._metrics = model, dict(model.metrics(context, values, self._features, self._labels))
        self._outputs = dict(model.outputs(context, values, self._features))
        with tf.device("/device:CPU:0"):
            self._ids = [table.ids(context, self._features) for table, _ in tables.places]

    def run(self, session: tf.compat.v1.Session, examples: Source) -> dict[str, float]:
        """Return {name: result} over `examples`: the model's function `results`, applied to its metrics.

        A float metric is the mean over calls of EVALUATION_BATCH examples, weighted by their numbers of
        examples. An integer metric is the sum over the calls. Raises tf.errors.OpError.
        """
        count = len(examples)
        totals: dict[str, npt.NDArray[Any]] = {}
        for first in range(0, count, EVALUATION_BATCH):
            piece = examples.read(first, min(EVALUATION_BATCH, count - first))
            feeds = {self._features: piece.features, self._labels: piece.labels}
            for name, value in session.run(self._metrics, feeds).items():
                is_count = np.issubdtype(value.dtype, np.integer)
                part = value if is_count else value.astype(np.float64) * len(piece) / count
                totals[name] = totals.get(name, 0) + part
        return dict(self._model.results(totals))

    def outputs(
        self, session: tf.compat.v1.Session, features: npt.NDArray[np.generic]
    ) -> dict[str, npt.NDArray[np.generic]]:
        """Return {name: output of the model, [batch, ...]} for a batch of features, [batch, ...].

        Raises tf.errors.OpError.
        """
        outputs: dict[str, npt.NDArray[np.generic]] = session.run(self._outputs, {self._features: features})
        return outputs

    def ids(
        self, session: tf.compat.v1.Session, features: npt.NDArray[np.generic]
    ) -> list[npt.NDArray[np.int64]]:
        """Return, for each of the model's tables in their order, the rows that each example needs.

        Each array is int64 [batch, ids of an example]. The tables are not read. Raises tf.errors.OpError.
        """
        ids: list[npt.NDArray[np.int64]] = session.run(self._ids, {self._features: features})
        return ids

    def sample(self, session: tf.compat.v1.Session, examples: Source) -> dict[str, float]:
        """Return the first 32 numbers of each output for the first 10 examples: {"logits[0]": 0.5, ..}.

        An output is flattened, so "logits[9]" may belong to another example than "logits[0]". Outputs that
        are no numbers are left out. Raises tf.errors.OpError.
        """
        features = examples.read(0, min(_SAMPLE_EXAMPLES, len(examples))).features
        return {
            f"{name}[{place}]": float(number)
            for name, output in self.outputs(session, features).items()
            if np.issubdtype(output.dtype, np.number)
            for place, number in enumerate(output.reshape(-1)[:_SAMPLE_NUMBERS])
        }


class FinalModel:
    """A model with the values of a checkpoint, which this process computes alone, on its CPU.

    Rows of tables stay in the files beside the checkpoint; a batch reads the rows that it needs from there.
    """

    def __init__(self, checkpoint: Checkpoint, settings: TrainingSettings, ps_count: int) -> None:
        """Restore the checkpoint, whose files must have been checked.

        `ps_count` is the run's number of ps, on which the number of a model's variables may depend. Raises
        TaskFailure (`configuration`) if the checkpoint is not of the model in these settings, and TaskFailure
        (`input`) if the examples cannot be read.
        """
        self.model, workers = find_model(settings.model), len(checkpoint.values[COUNTERS]) - FIRST_WORKER
        data = self.model.load(settings, workers)
        self.context = ModelContext(settings, data, Devices((_CPU,) * ps_count, _CPU))
        with tf.Graph().as_default() as graph, v1.device(_CPU):
            self._variables = self.model.create_variables(self.context)
            self._tables = Tables(self.model, self.context, gather=self._saved_rows)
            self._evaluation = Evaluation(self.model, self.context, self._variables, self._tables)
            self._learned = [*self._variables, *self._tables.variables]
            self._restore_operation = RestoreOperation(self._learned)
        self._session = v1.Session(graph=graph, config=runtime_config(settings.threads))
        self._rows: dict[str, SavedRows] = {}
        self._workers = workers
        self.restore(checkpoint)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Set the variables from another checkpoint of the run, whose files must have been checked.

        Raises TaskFailure (`configuration`) if the checkpoint is not of this model.
        """
        _require_no_others(checkpoint, self.model, self._learned)
        self._restore_operation.run(self._session, checkpoint)
        names = {table.name for table in self._tables.variables}
        self._rows = {
            table.layout.table: SavedRows(checkpoint.path, table)
            for table in checkpoint.tables
            if table.layout.table in names
        }
        self._checkpoint = checkpoint

    def results(self) -> dict[str, float]:
        """Return {name: result} on all test examples, as `Evaluation.run` does."""
        return self._evaluation.run(self._session, self.context.data.test)

    def metrics(self) -> dict[str, float]:
        """Return {name: number}: the results on all test examples, and the model's `levels`."""
        levels = self.model.levels_at(self.context, self._checkpoint.global_step, self._workers)
        return {**self.results(), **levels}

    def values(self) -> dict[str, npt.NDArray[np.generic] | PartOfRows]:
        """Return {name: value} of the model's variables and tables, without the optimizer's slots.

        A table has an entry for each of `ps_count` parts, such as "tables_16/part_0", whose rows are read
        from the files only when they are needed.
        """
        parts = {
            piece.op.name: self._rows[table.name].part(number, len(table.pieces))
            for table in self._tables.variables
            for number, piece in enumerate(table.pieces)
        }
        return {**self._dense_values(), **parts}

    def fingerprint(self) -> str:
        """Return the fingerprint of the model's variables and tables, without the optimizer's slots."""
        tables = [table for table in self._checkpoint.tables if table.layout.table in self._rows]
        return fingerprint_of(self._dense_values(), tables)

    def outputs(self, features: npt.NDArray[np.generic]) -> dict[str, npt.NDArray[np.generic]]:
        """Return {name: output of the model, [batch, ...]} for a batch of features, [batch, ...]."""
        return self._evaluation.outputs(self._session, features)

    def sample(self) -> dict[str, float]:
        """Return the first numbers of the outputs for the first test examples, as `Evaluation.sample` does.

        Each client of a run records the same numbers.
        """
        return self._evaluation.sample(self._session, self.context.data.test)

    def _dense_values(self) -> Mapping[str, npt.NDArray[np.generic]]:
        names = [name_of(variable) for variable in self._learned if not isinstance(variable, TableVariable)]
        return {name: self._checkpoint.values[name] for name in names}

    def _saved_rows(self, table: TableVariable, part: int, positions: tf.Tensor) -> tf.Tensor:
        """Return the rows at `positions` of part number `part` of a table, read from the files."""

        def read(places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.generic]:
            return self._rows[table.name].read(places.astype(np.int64) * len(table.pieces) + part)

        rows = tf.numpy_function(read, [positions], table.dtype.base_dtype)
        return tf.ensure_shape(rows, [None, *table.shape[1:]])


def values_for(
    model: Model,
    context: ModelContext,
    variables: Sequence[AnyVariable],
    tables: Tables,
    features: tf.Tensor,
) -> Values:
    """Return the values that the model's `metrics` and `outputs` take for a batch of `features`.

    These are the values of the variables, then for each table the rows that the batch needs.
    """
    looked_up = tables.look_up(context, features)
    return [*model.values_of(variables), *looked_up.values(looked_up.rows)]


def _require_no_others(checkpoint: Checkpoint, model: Model, variables: Sequence[AnyVariable]) -> None:
    """Raise TaskFailure (`configuration`) if the checkpoint has variables that the model does not have.

    An optimizer's slots are allowed. A slot is named after its variable, as in "hidden/weights/Adam". What an
    optimizer keeps once for all variables is a scalar, and scalars are allowed.
    """
    own = {name_of(variable) for variable in variables}
    shapes = {name: value.shape for name, value in checkpoint.values.items()}
    shapes |= {table.layout.table: table.layout.shape for table in checkpoint.tables}
    others = [
        name
        for name, shape in sorted(shapes.items())
        if name not in own | {COUNTERS} and name.rpartition("/")[0] not in own and shape != ()
    ]
    if others:
        listing = f"{first_of(others, _NAMES_SHOWN)}, which model {model.name} does not have"
        expected = f"expected {', '.join(sorted(own))} alone"
        raise TaskFailure(CONFIGURATION, f"checkpoint {checkpoint.path} holds {listing}; {expected}")

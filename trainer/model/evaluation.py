"""A model's metrics over examples, in a task that trains and in the evaluator, which does not."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import runtime_config
from trainer.coordination.ledger_parts import COUNTERS, FIRST_WORKER
from trainer.host.wording import first_of
from trainer.model.checkpoints import Checkpoint, RestoreOperation
from trainer.model.data import Examples
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, Model, ModelContext, Variables
from trainer.model.pieces import AnyVariable, name_of, value_of
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# Examples in one evaluation call; a whole test set may not fit into memory.
EVALUATION_BATCH = 1000
_CPU = "/device:CPU:0"
_NAMES_SHOWN = 5


class Evaluation:
    """The operations that evaluate a model, in the default graph."""

    def __init__(self, model: Model, context: ModelContext, variables: Sequence[AnyVariable]) -> None:
        test = context.data.test
        self._features = v1.placeholder(tf.float32, [None, *test.features.shape[1:]])
        self._labels = v1.placeholder(tf.as_dtype(test.labels.dtype), [None, *test.labels.shape[1:]])
        values = model.values_of(variables)
        self._metrics = dict(model.metrics(context, values, self._features, self._labels))

    def run(self, session: tf.compat.v1.Session, examples: Examples) -> dict[str, float]:
        """Return the model's metrics over these examples.

        Each metric is the mean over calls of EVALUATION_BATCH examples, weighted by their number of examples.
        Raises tf.errors.OpError.
        """
        totals = dict.fromkeys(self._metrics, 0.0)
        for start in range(0, len(examples), EVALUATION_BATCH):
            piece = slice(start, start + EVALUATION_BATCH)
            features, labels = examples.features[piece], examples.labels[piece]
            feeds = {self._features: features, self._labels: labels}
            for name, value in session.run(self._metrics, feeds).items():
                totals[name] += float(value) * len(features) / len(examples)
        return totals


class FinalModel:
    """A model with the values of a checkpoint, which this process computes alone, on its CPU."""

    def __init__(self, checkpoint: Checkpoint, settings: TrainingSettings, ps: int) -> None:
        """Restore the checkpoint.

        `ps` is the run's number of ps, on which the number of a model's variables may depend. Raises
        TaskFailure (`configuration`) if the checkpoint is not of the model in these settings, and TaskFailure
        (`input`) if the examples cannot be read.
        """
        self.model = REGISTRY[settings.model]
        data = self.model.load(settings, len(checkpoint.values[COUNTERS]) - FIRST_WORKER)
        self.context = ModelContext(settings, data, Devices((_CPU,) * ps, _CPU))
        with tf.Graph().as_default() as graph, v1.device(_CPU):
            self._variables = self.model.create_variables(self.context)
            self._evaluation = Evaluation(self.model, self.context, self._variables)
            restore_operation = RestoreOperation(self._variables)
        _require_no_others(checkpoint, self.model, self._variables)
        self._session = v1.Session(graph=graph, config=runtime_config(settings.threads))
        restore_operation.run(self._session, checkpoint)

    def metrics(self) -> dict[str, float]:
        """Return the metrics over the test examples."""
        return self._evaluation.run(self._session, self.context.data.test)

    def values(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return variable name -> its value."""
        with self._session.graph.as_default(), v1.device(_CPU):
            values = {name_of(variable): value_of(variable) for variable in self._variables}
        found: dict[str, npt.NDArray[np.generic]] = self._session.run(values)
        return found

    def outputs(self, features: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.generic]]:
        """Return name -> the model's output for each of these features."""
        with self._session.graph.as_default(), v1.device(_CPU):
            fed = v1.placeholder(tf.float32, [None, *features.shape[1:]])
            outputs = self.model.outputs(self.context, self.model.values_of(self._variables), fed)
        found: dict[str, npt.NDArray[np.generic]] = self._session.run(dict(outputs), {fed: features})
        return found


def _require_no_others(checkpoint: Checkpoint, model: Model, variables: Variables) -> None:
    """Raise TaskFailure (`configuration`) if the checkpoint has variables that the model does not have.

    An optimizer's slots are allowed. A slot is named after its variable, as in "hidden/weights/Adam"; what
    an optimizer keeps once for all variables is a scalar.
    """
    own = {name_of(variable) for variable in variables}
    others = [
        name
        for name, value in sorted(checkpoint.values.items())
        if name not in own | {COUNTERS} and name.rpartition("/")[0] not in own and value.shape != ()
    ]
    if others:
        held = f"{first_of(others, _NAMES_SHOWN)}, which model {model.name} does not have"
        expected = f"expected {', '.join(sorted(own))} alone"
        raise TaskFailure(CONFIGURATION, f"checkpoint {checkpoint.path} holds {held}; {expected}")

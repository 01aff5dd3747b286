"""What a model is worth: its metrics over examples, for a task that trains and for one that took no part."""

from collections.abc import Sequence

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
from trainer.model.pieces import AnyVariable, name_of
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# Examples that are evaluated at once; all of a test set may not fit into memory.
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
        """The model's metrics over these examples, a mean weighted by the size of each piece.

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


def evaluate_checkpoint(
    checkpoint: Checkpoint, settings: TrainingSettings, ps: int
) -> tuple[dict[str, float], int]:
    """The metrics of a checkpoint over the test examples, by this process alone on its CPU, and their number.

    `ps` is how many the run had: a model may make its variables by them. Where these were does not matter.
    Raises TaskFailure of class `configuration` where the checkpoint is not of the model of these settings,
    and of class `input` without examples.
    """
    model = REGISTRY[settings.model]
    data = model.load(settings, len(checkpoint.values[COUNTERS]) - FIRST_WORKER)
    context = ModelContext(settings, data, Devices((_CPU,) * ps, _CPU))
    with tf.Graph().as_default() as graph, v1.device(_CPU):
        variables = model.create_variables(context)
        evaluation = Evaluation(model, context, variables)
        restore_operation = RestoreOperation(variables)
    _require_no_others(checkpoint, model, variables)
    with v1.Session(graph=graph, config=runtime_config(settings.threads)) as session:
        restore_operation.run(session, checkpoint)
        metrics = evaluation.run(session, data.test)
    return metrics, len(data.test)


def _require_no_others(checkpoint: Checkpoint, model: Model, variables: Variables) -> None:
    """Refuse values of variables that the model does not have.

    What an optimizer keeps of a variable is named after it, as in "hidden/weights/Adam"; what it keeps of
    all is a scalar.
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

"""The replication engines by the name that `--replication` gives them."""

from __future__ import annotations

from trainer.asynchronous import AsynchronousGraph
from trainer.data import Data
from trainer.exit_codes import CONFIGURATION
from trainer.failure import TaskFailure
from trainer.in_graph import InGraphGraph
from trainer.models.model import Model
from trainer.synchronous import SynchronousGraph
from trainer.task import Task
from trainer.training import TrainingGraph

_ENGINES: dict[str, type[TrainingGraph]] = {
    "async": AsynchronousGraph,
    "in_graph": InGraphGraph,
    "local": AsynchronousGraph,
    "sync": SynchronousGraph,
}


def build_graph(task: Task, model: Model, data: Data) -> TrainingGraph:
    """The graph of this worker for the run's replication. Raises TaskFailure where no engine has its name."""
    name = task.settings.replication
    engine = _ENGINES.get(name)
    if engine is None:
        raise TaskFailure(
            CONFIGURATION, f"replication is {name!r}; this trainer can do {', '.join(sorted(_ENGINES))}"
        )
    return engine(task.cluster, task.settings, model, data)

"""The replication engines by the name that `--replication` gives them."""

from __future__ import annotations

from trainer import device_report
from trainer.asynchronous import AsynchronousGraph
from trainer.data import Data
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
    """The graph of this worker for the run's replication; its first step writes the device report."""
    graph = _ENGINES[task.settings.replication](task.cluster, task.settings, model, data)
    directory, name = task.options.run_directory, task.cluster.task
    if directory is not None:
        path = directory / "devices" / f"{name}.json"
        graph.tell_partitions = lambda partitions: device_report.write(
            path, device_report.report(name, partitions)
        )
    return graph

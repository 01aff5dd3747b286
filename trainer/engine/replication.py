"""The replication engines, by the values of `--replication`."""

from trainer.coordination.running_task import RunningTask
from trainer.engine import device_report
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.in_graph import InGraphGraph
from trainer.engine.synchronous import SynchronousGraph
from trainer.engine.training import TrainingGraph
from trainer.model.data import Data
from trainer.model.models.model import Model

ENGINES: dict[str, type[TrainingGraph]] = {
    "async": AsynchronousGraph,
    "in_graph": InGraphGraph,
    "local": AsynchronousGraph,
    "sync": SynchronousGraph,
}


def build_graph(task: RunningTask, model: Model, data: Data) -> TrainingGraph:
    """Return this worker's graph for the run's `replication`.

    If the task has a run directory, its first step writes the report `devices/<task>.json` there.
    """
    graph = ENGINES[task.settings.replication](task.cluster, task.settings, model, data)
    directory, name = task.options.run_directory, task.cluster.task
    if directory is not None:
        path = directory / "devices" / f"{name}.json"
        graph.report_partitions = lambda graphs: device_report.write(path, device_report.report(name, graphs))
    return graph

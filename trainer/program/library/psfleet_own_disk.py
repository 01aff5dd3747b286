"""Lets savers of TensorFlow 1 write one file, on the disk of the task that saves: tasks share no disk."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

# Target of a session -> (job, index) of this process's task, which serves there.
servers: dict[str, tuple[str, int]] = {}


def own_device() -> str:
    """Return the device of this process's task, such as "/job:worker/task:0"; "" without a server."""
    job, index = next(iter(servers.values()), ("", 0))
    return f"/job:{job}/task:{index}" if job else ""


def tasks_in(graph: Any) -> set[tuple[str, int | None]]:
    """Return (job, index) of each task on which a graph places operations; the index may be None."""
    from tensorflow.python.framework.device_spec import DeviceSpecV2

    specs = map(DeviceSpecV2.from_string, {operation.device for operation in graph.get_operations()})
    return {(spec.job, spec.task) for spec in specs if spec.job is not None}


def note_servers(module: ModuleType) -> None:
    """Wrap servers, to note which task this process is."""
    initialise = module.Server.__init__

    @functools.wraps(initialise)
    def noting(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        definition = self.server_def
        addresses = {job.name: job.tasks for job in definition.cluster.job}[definition.job_name]
        for target in (self.target, f"grpc://{addresses[definition.task_index]}"):
            servers[target] = (definition.job_name, definition.task_index)

    module.Server.__init__ = noting


def save_on_own_disk(module: ModuleType) -> None:
    """Wrap savers, so that this process's own task writes and reads checkpoints, in one file.

    A saver with `sharded=True`, as Estimator's and MonitoredTrainingSession's own, would let each ps write
    its part to the disk of the ps, where no task could restore it. A graph without tasks may run in a session
    of this process alone, which does not know the name of its own task.
    """
    initialise, build = module.Saver.__init__, module.Saver._build

    @functools.wraps(initialise)
    def unsharded(
        self: Any, var_list: Any = None, reshape: Any = False, sharded: Any = False, *more: Any, **named: Any
    ) -> None:
        initialise(self, var_list, reshape, sharded and not own_device(), *more, **named)

    @functools.wraps(build)
    def building(self: Any, *arguments: Any, **named: Any) -> Any:
        own = own_device() if tasks_in(module.ops.get_default_graph()) else ""
        with module.ops.device(f"{own}/cpu:0" if own else ""):
            return build(self, *arguments, **named)

    module.Saver.__init__, module.Saver._build = unsharded, building

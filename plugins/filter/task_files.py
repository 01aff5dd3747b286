"""The files that deploy.yml and train.yml write for each task of a host: filters of what psfleet/run says."""

from collections.abc import Callable
from typing import Any

from psfleet.run import task_files
from psfleet.run.cuda_environment import cuda_environment

FILTERS = (
    cuda_environment,
    task_files.task_environments,
    task_files.gpu_drop_ins,
    task_files.run_files,
    task_files.evaluator_files,
    task_files.run_environment_path,
)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {function.__name__: function for function in FILTERS}

"""The files that deploy.yml writes for each task of a host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from trainer.cuda_environment import cuda_environment
from trainer.host.environment import HostEnvironment
from trainer.plan import JOBS, ClusterPlan, Task

HEADER = "# Written by psfleet's deploy.yml: what {job} {index} has to know of the cluster.\n"
NO_CUDA: Mapping[str, str] = {}


def task_environments(
    tasks: Sequence[Mapping[str, Any]],
    directory: str,
    plan: Mapping[str, Any],
    release: str,
    cuda: Mapping[str, str] = NO_CUDA,
) -> list[dict[str, str]]:
    """Return path and content of the environment file of each task, as docs/architecture.md describes it.

    `tasks` are some of the plan's, `plan` is the fact `cluster_plan`, `cuda` is what `cuda_environment` said.
    """
    names = {(task["job"], task["index"]) for task in tasks}
    cluster = ClusterPlan.from_json(plan)
    return [
        {
            "path": f"{directory}/{task.job}-{task.index}.env",
            "content": HEADER.format(job=task.job, index=task.index)
            + environment_text(environment(cluster, task, release, cuda)),
        }
        for task in cluster.tasks
        if (task.job, task.index) in names
    ]


def cuda_environment_of(
    environment_name: str, install_directory: str, lock: str, toolkit: str, libraries: Sequence[str]
) -> dict[str, str]:
    """Return what the tasks with GPUs of a host are told of CUDA, by the name of the host's environment.

    Raises ValueError for a name that is no environment's.
    """
    return cuda_environment(
        HostEnvironment.parse(environment_name), install_directory, lock, toolkit, libraries
    )


def environment(
    plan: ClusterPlan, task: Task, release: str, cuda: Mapping[str, str] = NO_CUDA
) -> dict[str, str]:
    """Return the environment of a task. It sees its own GPUs; without any it sees none of the machine's.

    Raises ValueError where a task has GPUs, and its host no environment for them.
    """
    if task.gpus and not cuda:
        raise ValueError(f"{task.name} has GPUs, and the environment of {task.host} is not made for them")
    return {
        "PSFLEET_PS_HOSTS": plan.ps_hosts,
        "PSFLEET_WORKER_HOSTS": plan.worker_hosts,
        "PSFLEET_PLAN_HASH": plan.hash,
        "PSFLEET_RELEASE": release,
        "TF_CONFIG": plan.tf_config(task),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in task.gpus),
        # Whatever systemd was told to give all units, a task takes no library from it.
        **(cuda if task.gpus else {"LD_LIBRARY_PATH": ""}),
    }


def environment_text(values: Mapping[str, str]) -> str:
    """Return the lines of an environment file of systemd.

    Raises ValueError where a value cannot stand in one.
    """
    return "".join(f"{name}={_quoted(name, value)}\n" for name, value in values.items())


def _quoted(name: str, value: str) -> str:
    quote = "'" if '"' in value else '"'
    if any(character in value for character in f"{quote}\\\n"):
        raise ValueError(f"{name} is {value!r}; expected no quotes of both kinds, backslashes or line ends")
    return f"{quote}{value}{quote}"


def gpu_drop_ins(tasks: Sequence[Mapping[str, Any]], directory: str, content: str) -> list[dict[str, str]]:
    """Return path and content of the drop-in of each unit whose task has GPUs, and of the task's doctor."""
    given = [task for task in tasks if task["gpus"]]
    units = [f"psfleet-{task['job']}@{task['index']}" for task in given]
    units += [f"psfleet-doctor@{task['job']}-{task['index']}" for task in given if task["job"] in JOBS]
    return [{"path": f"{directory}/{unit}.service.d/gpu.conf", "content": content} for unit in units]


class FilterModule:
    """The filters `task_environments`, `cuda_environment` and `gpu_drop_ins`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "task_environments": task_environments,
            "cuda_environment": cuda_environment_of,
            "gpu_drop_ins": gpu_drop_ins,
        }

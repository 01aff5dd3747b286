"""The files that deploy.yml writes for each task of a host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from trainer.plan import ClusterPlan, Task

HEADER = "# Written by psfleet's deploy.yml: what {job} {index} has to know of the cluster.\n"


def task_environments(
    tasks: Sequence[Mapping[str, Any]], directory: str, plan: Mapping[str, Any], release: str
) -> list[dict[str, str]]:
    """Return path and content of the environment file of each task, as docs/architecture.md describes it.

    `tasks` are some of the plan's, `plan` is the fact `cluster_plan`.
    """
    names = {(task["job"], task["index"]) for task in tasks}
    cluster = ClusterPlan.from_json(plan)
    return [
        {
            "path": f"{directory}/{task.job}-{task.index}.env",
            "content": HEADER.format(job=task.job, index=task.index)
            + environment_text(environment(cluster, task, release)),
        }
        for task in cluster.tasks
        if (task.job, task.index) in names
    ]


def environment(plan: ClusterPlan, task: Task, release: str) -> dict[str, str]:
    """Return the environment of a task. It sees its own GPUs; without any it sees none of the machine's."""
    return {
        "PSFLEET_PS_HOSTS": plan.ps_hosts,
        "PSFLEET_WORKER_HOSTS": plan.worker_hosts,
        "PSFLEET_PLAN_HASH": plan.hash,
        "PSFLEET_RELEASE": release,
        "TF_CONFIG": plan.tf_config(task),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in task.gpus),
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
    """Return path and content of the drop-in of each unit whose task has GPUs."""
    return [
        {"path": f"{directory}/psfleet-{task['job']}@{task['index']}.service.d/gpu.conf", "content": content}
        for task in tasks
        if task["gpus"]
    ]


class FilterModule:
    """The filters `task_environments` and `gpu_drop_ins`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"task_environments": task_environments, "gpu_drop_ins": gpu_drop_ins}

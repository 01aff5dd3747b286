"""The files that deploy.yml writes for each task of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

HEADER = "# Written by psfleet's deploy.yml: what {job} {index} has to know of the cluster.\n"


def task_environments(
    tasks: Sequence[Mapping[str, Any]], directory: str, plan: Mapping[str, Any], release: str
) -> list[dict[str, str]]:
    """Return path and content of the environment file of each task, as docs/architecture.md describes it."""
    return [
        {
            "path": f"{directory}/{task['job']}-{task['index']}.env",
            "content": HEADER.format(**task) + environment_text(environment(task, plan, release)),
        }
        for task in tasks
    ]


def environment(task: Mapping[str, Any], plan: Mapping[str, Any], release: str) -> dict[str, str]:
    """Return the environment of a task. It sees its own GPUs; without any it sees none of the machine's."""
    return {
        "PSFLEET_PS_HOSTS": plan["ps_hosts"],
        "PSFLEET_WORKER_HOSTS": plan["worker_hosts"],
        "PSFLEET_PLAN_HASH": plan["hash"],
        "PSFLEET_RELEASE": release,
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in task["gpus"]),
    }


def environment_text(values: Mapping[str, str]) -> str:
    """Return the lines of an environment file of systemd.

    Raises ValueError where a value cannot stand in one.
    """
    for name, value in values.items():
        if any(character in value for character in '"\\\n'):
            raise ValueError(f"{name} is {value!r}; expected no quotes, backslashes or line ends")
    return "".join(f'{name}="{value}"\n' for name, value in values.items())


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

"""The cluster plan: which task runs on which host, at which address and port, with which GPUs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from .rules import as_given

VERSION = 1
_MOST = 1_000_000  # a bound for indices, ports and GPU numbers, far above any real one
# The tasks of a host get their ports in this order. A `chief` exists only for programs, as the coordinator.
Job = Literal["ps", "worker", "chief"]
JOBS: tuple[Job, ...] = get_args(Job)


@dataclass(frozen=True)
class PlannedTask:
    """One task of the cluster; `index` counts from 0 in its job, `gpus` are nvidia-smi's numbers.

    `address` is the host's address without the port.
    """

    job: Job
    index: int
    host: str
    address: str
    port: int
    gpus: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def target(self) -> str:
        """The address and port on which the task listens, such as "10.89.0.11:2222"."""
        return f"{self.address}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        """Return the task as an object in the plan's JSON."""
        return {**asdict(self), "gpus": list(self.gpus)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "PlannedTask":
        """Return the task, given an object of `to_json`. Raises KeyError or TypeError if it is not valid."""
        task = cls(**{**content, "gpus": tuple(content["gpus"])})
        whole = all(
            isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _MOST
            for number in (task.index, task.port, *task.gpus)
        )
        if not (whole and task.job in JOBS and isinstance(task.host, str) and isinstance(task.address, str)):
            raise TypeError("a task has an invalid job, number or name")
        return task


@dataclass(frozen=True)
class ClusterPlan:
    """The tasks of a cluster: ps, then workers, then chief, each job in the order of its indices."""

    cluster_name: str
    tasks: tuple[PlannedTask, ...]

    @cached_property
    def hash(self) -> str:
        """The first 12 hex digits of the SHA-256 of the canonical JSON of the cluster's name and tasks."""
        content = {"cluster_name": self.cluster_name, "tasks": [task.to_json() for task in self.tasks]}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def ps_hosts(self) -> str:
        """The value of the trainer's flag `--ps_hosts`: the ps's targets, with commas between."""
        return ",".join(task.target for task in self.tasks_of("ps"))

    @property
    def worker_hosts(self) -> str:
        """The value of the trainer's flag `--worker_hosts`: the workers' targets, with commas between."""
        return ",".join(task.target for task in self.tasks_of("worker"))

    @property
    def chief(self) -> PlannedTask:
        """Worker 0, which initialises, saves and evaluates the built-in models."""
        return self.tasks_of("worker")[0]

    def tasks_of(self, job: Job) -> tuple[PlannedTask, ...]:
        """Return the tasks of a job in the order of their indices; empty if the job has none."""
        return tuple(task for task in self.tasks if task.job == job)

    def tf_config(self, task: PlannedTask) -> str:
        """Return the value of TF_CONFIG for a task, as JSON text; jobs without tasks are left out."""
        cluster = {
            job: [member.target for member in members] for job in JOBS if (members := self.tasks_of(job))
        }
        return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})

    def to_json(self) -> dict[str, Any]:
        """Return the object that `plan.json` contains."""
        return {
            "version": VERSION,
            "cluster_name": self.cluster_name,
            "hash": self.hash,
            "tasks": [task.to_json() for task in self.tasks],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "ClusterPlan":
        """Return the plan, given an object of `to_json`.

        Raises ValueError if the object has another version, lacks a field, or does not match its hash.
        """
        if content.get("version") != VERSION:
            raise ValueError(f"the plan has version {as_given(content.get('version'))}; expected {VERSION}")
        try:
            plan = cls(content["cluster_name"], tuple(map(PlannedTask.from_json, content["tasks"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"the plan is not complete: {error}") from error
        if not isinstance(plan.cluster_name, str):
            raise ValueError(f"the plan's cluster_name is {as_given(plan.cluster_name)}; expected a text")
        if plan.hash != content.get("hash"):
            raise ValueError(
                f"the plan's hash is {as_given(content.get('hash'))}, its content's is {plan.hash!r}"
            )
        return plan

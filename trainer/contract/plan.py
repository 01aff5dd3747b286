"""The cluster plan: which task runs on which host, at which address and port, with which GPUs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import TEXT, one_of, tuple_of, whole
from trainer.contract.rules import SettingsError, as_given, setting
from trainer.contract.task_names import EVALUATOR

VERSION = 1
# The tasks of a host get their ports in this order. Only programs have a `chief`, which coordinates, and an
# `evaluator`, which is outside of the cluster and evaluates the chief's checkpoints.
Job = Literal["ps", "worker", "chief", "evaluator"]
JOBS: tuple[Job, ...] = get_args(Job)
_NUMBER = whole(0, 999_999)  # indices, ports and GPU numbers; the bound is far above any real one


@dataclass(frozen=True)
class PlannedTask(JsonObject):
    """One task of the cluster.

    `index` counts from 0 in its job; `host` is the name in the inventory; `address` is the host's address
    without the port; `gpus` are the numbers of the task's GPUs in nvidia-smi, () for none.
    """

    job: Job = setting(MISSING, one_of(*JOBS))  # noqa: RUF009 - a Job is a text
    index: int = setting(MISSING, _NUMBER)
    host: str = setting(MISSING, TEXT)
    address: str = setting(MISSING, TEXT)
    port: int = setting(MISSING, _NUMBER)
    gpus: tuple[int, ...] = setting((), tuple_of(_NUMBER))

    @property
    def name(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def target(self) -> str:
        """The address and port on which the task listens, such as "10.89.0.11:2222"."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True)
class ClusterPlan(JsonObject):
    """The tasks of a cluster: ps, workers, chief, evaluator, each job in the order of its indices."""

    cluster_name: str = setting(MISSING, TEXT)
    tasks: tuple[PlannedTask, ...] = setting(MISSING, tuple_of(PlannedTask.as_rule()))

    @cached_property
    def hash(self) -> str:
        """The first 12 hex digits of the SHA-256 of the cluster's name and tasks (as canonical JSON)."""
        content = {"cluster_name": self.cluster_name, "tasks": [task.to_json() for task in self.tasks]}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def ps_hosts(self) -> str:
        """The trainer's flag `--ps_hosts`, such as "10.0.0.1:2222,10.0.0.2:2222"; "" without ps."""
        return ",".join(task.target for task in self.tasks_of("ps"))

    @property
    def worker_hosts(self) -> str:
        """The trainer's flag `--worker_hosts`, such as "10.0.0.3:2222,10.0.0.4:2222"."""
        return ",".join(task.target for task in self.tasks_of("worker"))

    @property
    def chief(self) -> PlannedTask:
        """Worker 0, the chief of built-in models; never `chief0`, which only programs use."""
        return self.tasks_of("worker")[0]

    def tasks_of(self, job: Job) -> tuple[PlannedTask, ...]:
        """Return the tasks of a job in the order of their indices; () if the job has none."""
        return tuple(task for task in self.tasks if task.job == job)

    def tf_config(self, task: PlannedTask) -> str:
        """Return the value of TF_CONFIG for a task, as JSON text; jobs without tasks are left out.

        The evaluator is no member of the cluster, although it may be the task.
        Example: {"cluster": {"ps": ["10.0.0.1:2222"], ..}, "task": {"type": "ps", "index": 0}}
        """
        cluster = {
            job: [member.target for member in members]
            for job in JOBS
            if job != EVALUATOR and (members := self.tasks_of(job))
        }
        return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})

    def to_json(self) -> dict[str, Any]:
        """Return the object in `plan.json`: {"version", "cluster_name", "hash", "tasks": list of objects}."""
        return {
            "version": VERSION,
            "cluster_name": self.cluster_name,
            "hash": self.hash,
            "tasks": [task.to_json() for task in self.tasks],
        }

    @classmethod
    def from_json(cls, content: object) -> "ClusterPlan":
        """Return the plan that `content`, a result of `to_json`, describes.

        Raises ValueError if `content` has another version, lacks a field, has an invalid one, or does not
        match its hash.
        """
        values = content if isinstance(content, Mapping) else {}
        if values.get("version") != VERSION:
            raise ValueError(f"the plan has version {as_given(values.get('version'))}; expected {VERSION}")
        try:
            plan = super().from_json(values)
        except SettingsError as error:
            raise ValueError(f"the plan is invalid: {error}") from error
        if plan.hash != values.get("hash"):
            raise ValueError(
                f"the plan's hash is {as_given(values.get('hash'))}, its content's is {plan.hash!r}"
            )
        return plan

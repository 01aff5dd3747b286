"""The settings of the runs that prove.yml trains (docs/prove.md), which replace the inventory's."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from psfleet.inventory.problems import InventoryError, InventoryProblem
from psfleet.inventory.variables import PREFIX
from trainer.contract.plan import ClusterPlan
from trainer.contract.settings import RESET_BY_PROVE, TrainingSettings

MODEL = "partition"
# {replication of a run of a proof: the words for it}
IN_WORDS = {"async": "asynchronously", "sync": "synchronously"}
# A worker needs about 20 steps to find its part. With the other steps one can see that all workers train side
# by side, even a worker with a fifth of an equal share.
_STEPS_OF_A_WORKER = 200
_FEWEST_ASYNCHRONOUS_STEPS = 2000


def proof_settings(settings: TrainingSettings, replication: str, plan: ClusterPlan) -> TrainingSettings:
    """Return a task's settings for a run of prove.yml: `settings`, except for those in RESET_BY_PROVE.

    `replication` is "async" or "sync". The proof chooses model, replication and steps; the others of
    RESET_BY_PROVE get their defaults. Batch sizes, threads, deadlines and the like stay, because the proof is
    about the cluster as it is configured.
    """
    return replace(settings, **_chosen(replication, plan))


def require_provable(plan: ClusterPlan, command_line: Collection[str]) -> None:
    """Raise InventoryError if the cluster has no ps or fewer than two workers.

    Raise it, too, if -e sets what the proof chooses. It has all these problems. `command_line` has the names
    of the variables that -e sets.
    """
    problems = []
    workers = plan.tasks_of("worker")
    if not plan.tasks_of("ps"):
        what = "the inventory has no ps, so no host can hold a shared model"
        problems.append(InventoryProblem(f"{what}; prove.yml expects a group ps with one host or more"))
    if len(workers) < 2:
        what = (
            f"the inventory has one worker, on {workers[0].host}, which has no other worker to share a model "
            "with"
        )
        problems.append(InventoryProblem(f"{what}; prove.yml expects two workers or more"))
    for name in RESET_BY_PROVE:
        if PREFIX + name in command_line:
            what = f"{PREFIX}{name} is given with -e, and prove.yml chooses it; expected no value"
            problems.append(InventoryProblem(what, cure=f"leave -e {PREFIX}{name}=... out"))
    if problems:
        raise InventoryError(problems)


def _chosen(replication: str, plan: ClusterPlan) -> dict[str, Any]:
    """Return {setting: value} for all of RESET_BY_PROVE.

    The value is the default, except for model (always `MODEL`), replication (the argument) and steps: 200, or
    200 for each worker of an asynchronous run, and then at least 2000.
    """
    asynchronous = max(_FEWEST_ASYNCHRONOUS_STEPS, _STEPS_OF_A_WORKER * len(plan.tasks_of("worker")))
    steps = asynchronous if replication == "async" else _STEPS_OF_A_WORKER
    defaults = TrainingSettings().as_dict()
    own = {"model": MODEL, "replication": replication, "steps": steps}
    return {name: own.get(name, defaults[name]) for name in RESET_BY_PROVE}

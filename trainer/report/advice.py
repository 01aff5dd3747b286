"""What to do next, for each check that can fail."""

from __future__ import annotations

from collections.abc import Iterable

from trainer.evidence.check import Check

_TRAIN_ANEW = "Train again under a new run id: ansible-playbook train.yml -e run_id=NAME."
_LOGS = "Read the end of the log of each task named here: logs/ in the run's folder, and below."
_PLAN = (
    "Deploy to all hosts again, so that each has the same plan and release: ansible-playbook deploy.yml. Then"
    " train under a new run id."
)
_LEARNING = (
    "Look at the loss: where it still falls, raise trainer_steps; where it jumps or rises, lower"
    " trainer_learning_rate. Both are set in inventory/<name>/group_vars/tf_cluster.yml."
)
_ADVICE = {
    "records_complete": (
        "Collect the run again while its hosts have the records: ansible-playbook train.yml -e run_id=ID."
        " What a host has lost stays lost, and then the run cannot be proven."
    ),
    "same_plan_and_release": _PLAN,
    "same_settings": f"A task was told to train something else, as one started by hand. {_TRAIN_ANEW}",
    "ended_well": f"{_LOGS} A run that was stopped goes on with: ansible-playbook train.yml -e run_id=ID.",
    "no_restart_from_zero": (
        "The chief found no checkpoint when it started again. See whether its disk is full, or its state"
        f" directory was removed. {_TRAIN_ANEW}"
    ),
    "same_parameter_servers": (
        f"Workers used different parameter servers: each group trained a model of its own. {_PLAN}"
    ),
    "workers_met": f"Workers did not find each other on the parameter servers. {_PLAN}",
    "servers_met": f"A client used another server than its own. {_PLAN}",
    "contributions_add_up": (
        f"The counts on the parameter servers and the records disagree. {_TRAIN_ANEW} If it comes again, keep"
        " the run's folder: it is a bug worth reporting."
    ),
    "steps_accounted": f"The global step was moved, and no worker's records say by whom. {_TRAIN_ANEW}",
    "fair_shares": (
        "A worker did far less than the others. Look at its host's load and network, give it a smaller"
        " trainer_batch_size, or accept it with training_evidence_minimum_share."
    ),
    "workers_overlap": (
        "A worker joined late or left early: see the timeline. Give a short run more trainer_steps."
    ),
    "steps_interleave": f"A worker moved the global step alone. {_PLAN}",
    "fingerprints_agree": (
        f"In the end the workers read different models: not all use the same parameter servers. {_PLAN}"
    ),
    "evaluated_apart": (
        "A process that took no part must evaluate the last checkpoint on the chief's host: see whether that"
        " checkpoint is there, and collect the run again: ansible-playbook train.yml -e run_id=ID."
    ),
    "loss_finite": "The training diverged. Lower trainer_learning_rate, and look for bad values in the data.",
    "loss_fell": _LEARNING,
    "loss_settled": _LEARNING,
    "model_converged": _LEARNING,
    "log_patterns": "Compare the patterns of training_evidence_log_patterns with what the logs say.",
    "files_unchanged": (
        "Files differ from what the manifest says. Take the folder anew from where the run was collected, or"
        " ask who changed it."
    ),
    "tasks_ended_well": f"{_LOGS} Mend the program, deploy it, and train again.",
    "tasks_exchanged": (
        "The tasks hardly talked to one another. See whether the program uses its flags or TF_CONFIG."
    ),
    "goals_reached": "The last evaluation misses training_evidence_goals: train longer, or ask for less.",
}
_ELSEWHERE = "docs/verdict.md says what this check asks for."


_UNREADABLE = (
    "Nothing can be said without it. Take the whole folder from where the run was collected, or collect the"
    " run again while its hosts have it: ansible-playbook train.yml -e run_id=ID."
)


def next_steps(failing: Iterable[Check], problem: str, most: int = 6) -> tuple[tuple[str, str], ...]:
    """Return for each check what to do, those with the same advice together: (names of checks, advice).

    With a `problem` that keeps the whole run from being judged, what to do about that.
    """
    if problem:
        return ((problem, _UNREADABLE),)
    checks_of: dict[str, list[str]] = {}
    for check in failing:
        checks_of.setdefault(_ADVICE.get(check.check, _ELSEWHERE), []).append(check.check.replace("_", " "))
    return tuple((", ".join(names), advice) for advice, names in checks_of.items())[:most]

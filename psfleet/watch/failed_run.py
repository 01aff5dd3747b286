"""Says why tasks failed, and how people can resume the run, or repair its program and begin another."""

from collections.abc import Iterable, Mapping
from typing import Any

from trainer.contract.exit_codes import (
    CLUSTER_BROKE,
    CONFIGURATION,
    FINISHED,
    OUT_OF_MEMORY,
    PEERS_MISSING,
    STOPPED,
)
from trainer.host.wording import first_of, grouped

# Exit codes of a program's task that say nothing about the program's code. Codes from 128 on are signals.
_NOT_THE_PROGRAMS = (FINISHED, PEERS_MISSING, OUT_OF_MEMORY, CLUSTER_BROKE, CONFIGURATION, STOPPED)
_FIRST_SIGNAL = 128


def resume_advice(run: Mapping[str, Any], global_step: object, endings: Iterable[Mapping[str, Any]]) -> str:
    """Return what to do about a failed run, with each command in a line of its own.

    If an exit code shows that the program failed, the advice is to begin a new run, because a run keeps its
    program. Any other run is resumed. `run` is the result of decide_run, `global_step` the last known global
    step or None, `endings` the tasks as the module trainer_tasks describes their ends.
    """
    program = run["settings"].get("program")
    failed, again = f"Run {run['id']} failed", f"  ansible-playbook train.yml -e run_id={run['id']}"
    made_steps = isinstance(global_step, int | float) and global_step > 0
    if program and any(task["failed"] and _is_the_programs(task["exit_code"]) for task in endings):
        name = f" -e program={program['name']}" if program.get("name") else ""
        lines = [
            f"{failed}, and a run keeps its program. Once the program is repaired, begin a new run:",
            "  ansible-playbook deploy.yml",
            f"  ansible-playbook train.yml{name}",
        ]
        if made_steps:
            lines += ["If the cause was elsewhere, this command resumes it from its last checkpoint:", again]
        return "\n".join(lines)
    if made_steps:
        return (
            f"{failed}. Once its cause is fixed, this command resumes it from its last checkpoint:\n{again}"
        )
    return (
        f"{failed} before psfleet saw a step. Once its cause is fixed, this command goes on with it:\n{again}"
    )


def _is_the_programs(exit_code: object) -> bool:
    return isinstance(exit_code, int) and exit_code < _FIRST_SIGNAL and exit_code not in _NOT_THE_PROGRAMS


def failures(tasks: Iterable[Mapping[str, Any]], what: str = "failed") -> list[str]:
    """Return why tasks failed, in sentences: each reason once, with the names of its tasks; [] for no tasks.

    `tasks` are as the module trainer_tasks describes them; `what` is the verb of the sentences.
    Example: ["worker0, worker1 failed, exit code 1: no such file"]
    """
    alike = grouped(((task["exit_code"], str(task["reason"])), str(task["name"])) for task in tasks)
    return [
        f"{first_of(names)} {what}, exit code {code}: {reason}" for (code, reason), names in alike.items()
    ]

"""Notes: what a task writes into the ledger about itself, so that others can identify and compare it."""

from collections.abc import Mapping

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import PER_HOST
from trainer.coordination.ledger_parts import Note
from trainer.coordination.running_task import RunningTask
from trainer.process.failure import TaskFailure


def worker_note(task: RunningTask, last_step: int) -> dict[str, object]:
    """Return the note that a client writes to ps 0.

    Its keys are "nonce", "cluster", "settings", "batch_size" and "last_step" (the run's last global step).
    """
    return {**serving_note(task), "settings": _shared_settings(task), "last_step": last_step}


def serving_note(task: RunningTask) -> dict[str, object]:
    """Return the note that a serving task writes into its own part of the ledger.

    Its keys are "nonce" and "cluster", and for a worker also "settings" and "batch_size".
    """
    note: dict[str, object] = {"nonce": task.nonce, "cluster": task.cluster.description}
    if task.cluster.job == "worker":
        note |= {"settings": _shared_settings(task), "batch_size": task.settings.batch_size}
    return note


def _shared_settings(task: RunningTask) -> dict[str, object]:
    shared = {name: value for name, value in task.settings.as_dict().items() if name not in PER_HOST}
    return {**shared, "run_id": task.options.identity.run_id}


def require_equal_settings(task: str, note: Note, others: Mapping[str, Note]) -> None:
    """Raise TaskFailure (`configuration`) if another task has a different cluster or different settings.

    `note` is the note of the task `task`; `others` maps each other task to its note. If another note has no
    "cluster" or no "settings", that part is not compared.
    """
    for other, other_note in others.items():
        for part in ("cluster", "settings"):
            own, theirs = note[part], other_note.get(part)
            if not isinstance(own, Mapping) or not isinstance(theirs, Mapping):
                continue
            different = [name for name in own if theirs.get(name) != own[name]]
            if different:
                name = different[0]
                values = f"{task} has {own[name]!r}, {other} has {theirs.get(name)!r}"
                reason = f"{task} and {other} differ in {name}: {values}"
                raise TaskFailure(CONFIGURATION, f"{reason}; start every task of a run with the same")


def integer_in(note: Note, name: str) -> int:
    """Return the integer field `name` of a note; 0 if the note has no such field, or no integer in it."""
    value = note.get(name)
    return value if isinstance(value, int) else 0

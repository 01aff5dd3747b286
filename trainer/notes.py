"""What a task leaves for the others to read: who it is, and what a run's tasks must have in common."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.exit_codes import CONFIGURATION
from trainer.failure import TaskFailure
from trainer.ledger import Note
from trainer.settings import PER_HOST
from trainer.task import Task


def worker_note(task: Task, last_step: int) -> dict[str, object]:
    """What a client leaves on ps 0: who it is, and what it must have in common with the others."""
    return {**serving_note(task), "settings": _shared_settings(task), "last_step": last_step}


def serving_note(task: Task) -> dict[str, object]:
    """What a task that serves leaves in its own part of the ledger."""
    note: dict[str, object] = {"nonce": task.nonce, "cluster": task.cluster.description}
    if task.cluster.job == "worker":
        note |= {"settings": _shared_settings(task), "batch_size": task.settings.batch_size}
    return note


def _shared_settings(task: Task) -> dict[str, object]:
    """The settings that all workers of a run have alike."""
    shared = {name: value for name, value in task.settings.as_dict().items() if name not in PER_HOST}
    return {**shared, "run_id": task.options.run_id}


def compare(task: str, note: Note, others: Mapping[str, Note]) -> None:
    """Raise TaskFailure where another task was started for another cluster or with other settings."""
    for other, theirs in others.items():
        for part in ("cluster", "settings"):
            difference = _first_difference(note[part], theirs.get(part))
            if difference is not None:
                name, own, other_value = difference
                raise TaskFailure(
                    CONFIGURATION,
                    f"{task} and {other} differ in {name}: {task} has {own!r}, {other} has {other_value!r};"
                    " start every task of a run with the same",
                )


def integer_in(note: Note, name: str) -> int:
    """An integer of a note; 0 where it holds none."""
    value = note.get(name)
    return value if isinstance(value, int) else 0


def _first_difference(own: object, theirs: object) -> tuple[str, object, object] | None:
    if not isinstance(own, Mapping) or not isinstance(theirs, Mapping):
        return None
    for name, value in own.items():
        if theirs.get(name) != value:
            return name, value, theirs.get(name)
    return None

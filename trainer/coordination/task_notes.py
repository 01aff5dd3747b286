"""Notes: what a task writes into the ledger about itself, so that others can identify and compare it."""

from collections.abc import Mapping

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import PER_HOST
from trainer.coordination.ledger_parts import Note
from trainer.coordination.running_task import RunningTask
from trainer.process.failure import TaskFailure


def worker_note(task: RunningTask, last_step: int) -> dict[str, object]:
    """Return the note that a client leaves on ps 0: nonce, cluster, settings, and the run's last step."""
    return {**serving_note(task), "settings": _shared_settings(task), "last_step": last_step}


def serving_note(task: RunningTask) -> dict[str, object]:
    """Return the note that a serving task leaves in its own part of the ledger: nonce and cluster.

    The note of a worker also has its settings and its batch size.
    """
    note: dict[str, object] = {"nonce": task.nonce, "cluster": task.cluster.description}
    if task.cluster.job == "worker":
        note |= {"settings": _shared_settings(task), "batch_size": task.settings.batch_size}
    return note


def _shared_settings(task: RunningTask) -> dict[str, object]:
    shared = {name: value for name, value in task.settings.as_dict().items() if name not in PER_HOST}
    return {**shared, "run_id": task.options.identity.run_id}


def compare(task: str, note: Note, others: Mapping[str, Note]) -> None:
    """Raise TaskFailure (`configuration`) if another task has a different cluster or different settings.

    `others` maps each other task to its note; what a note lacks is not compared.
    """
    for other, theirs in others.items():
        for part in ("cluster", "settings"):
            own, its = note[part], theirs.get(part)
            if not isinstance(own, Mapping) or not isinstance(its, Mapping):
                continue
            different = [name for name in own if its.get(name) != own[name]]
            if different:
                name = different[0]
                values = f"{task} has {own[name]!r}, {other} has {its.get(name)!r}"
                reason = f"{task} and {other} differ in {name}: {values}"
                raise TaskFailure(CONFIGURATION, f"{reason}; start every task of a run with the same")


def integer_in(note: Note, name: str) -> int:
    """Return the integer field `name` of a note; 0 if the note has no such field, or no integer in it."""
    value = note.get(name)
    return value if isinstance(value, int) else 0

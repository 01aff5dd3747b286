"""How each task of a run does, for people: by name where they are few, else those that differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from trainer.progress_notes import SLOW_SHARE, rate_of

WORKERS_BY_NAME = 8
DIFFERING_SHOWN = 6
PS_BY_NAME = 4

Style = Literal["plain", "good", "warning"]


@dataclass(frozen=True)
class Piece:
    """A few words that are shown in one piece, and how."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True)
class TaskState:
    """A task as the watcher knows it.

    `rate` is a second, `share` of all contributions so far, both None where nobody counts them. `trouble` is
    a word or two, empty where there is none; `answers` is None where its port was not probed.
    """

    name: str
    host: str = ""
    address: str = ""
    rate: float | None = None
    share: float | None = None
    contributed: int | None = None
    restarts: int = 0
    trouble: str = ""
    answers: bool | None = None

    @property
    def short(self) -> Piece:
        """Its name, rate, share and trouble."""
        rate = "" if self.rate is None else rate_of(self.rate)
        share = "" if self.share is None else _percent(self.share)
        restarts = _restarts(self.restarts)
        trouble = ", ".join(word for word in (self.trouble, restarts) if word)
        words = (self.name, rate, share, f"({trouble})" if trouble else "")
        return Piece(" ".join(word for word in words if word), "warning" if self.trouble else "plain")

    def full(self, unit: str, looked_seconds: float | None) -> Piece:
        """All that is known of it, in a line. `unit` is what its rate counts, such as "steps"."""
        looked = "" if looked_seconds is None else f" {looked_seconds:.0f} s ago"
        answers = {True: f"answered{looked}", False: f"no answer{looked}", None: ""}[self.answers]
        words = (
            f"{self.name} on {self.host}",
            "" if self.rate is None else rate_of(self.rate, unit),
            "" if self.share is None else _percent(self.share),
            "" if self.contributed is None else f"{self.contributed} {unit}",
            _restarts(self.restarts),
            self.trouble if self.answers is not False else "",
            answers,
            self.address,
        )
        return Piece("  ".join(word for word in words if word), "warning" if self.trouble else "plain")


def worker_pieces(workers: Sequence[TaskState]) -> list[Piece]:
    """Describe the workers: each by its name where they are few, else in sum, with those that differ."""
    rates = [worker.rate for worker in workers if worker.rate is not None]
    if len(workers) <= WORKERS_BY_NAME:
        return [worker.short for worker in workers]
    pieces = [Piece(f"{len(workers)} workers")]
    if rates:
        pieces = [
            Piece(f"{len(workers)} workers, {rate_of(min(rates))} to {rate_of(max(rates))} each"),
            Piece(f"median {rate_of(median(rates))}"),
        ]
    differing = [worker for worker in workers if differs(worker, rates)]
    pieces += [worker.short for worker in differing[:DIFFERING_SHOWN]]
    if len(differing) > DIFFERING_SHOWN:
        pieces.append(Piece(f"and {len(differing) - DIFFERING_SHOWN} more that differ", "warning"))
    return pieces


def differs(worker: TaskState, rates: Sequence[float]) -> bool:
    """Whether a worker is not as the others are: in trouble, restarted, or far from the median."""
    if worker.trouble or worker.restarts:
        return True
    usual = median(rates) if rates else 0.0
    return worker.rate is not None and not SLOW_SHARE * usual <= worker.rate <= usual / SLOW_SHARE


def serving_pieces(serving: Sequence[TaskState]) -> list[Piece]:
    """Describe the tasks that only serve: which answer, and which do not."""
    answering = [task.name for task in serving if task.answers]
    pieces = [task.short for task in serving if task.trouble]
    if answering:
        named = ", ".join(answering) if len(answering) <= PS_BY_NAME else _kinds(answering)
        pieces.append(Piece(f"{named} {'answers' if len(answering) == 1 else 'answer'}"))
    return pieces


def _restarts(count: int) -> str:
    return f"{count} restart{'' if count == 1 else 's'}" if count else ""


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 or not share else f"{share:.1%}"


def _kinds(tasks: Sequence[str]) -> str:
    kinds: dict[str, int] = {}
    for task in tasks:
        kind = task.rstrip("0123456789")
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())

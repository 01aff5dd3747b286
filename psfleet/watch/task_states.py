"""Describes the state of a run's tasks: each by name if there are few, else only those that differ."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.text import Text

from psfleet.watch.notices import SLOW_SHARE
from psfleet.watch.screen_text import rate_of
from trainer.contract.task_names import split_name
from trainer.host.wording import counted

WORKERS_BY_NAME = 8
DIFFERING_SHOWN = 6
PS_BY_NAME = 4
WAITED_FOR = "waited for"


@dataclass(frozen=True)
class TaskState:
    """A task as the watcher knows it.

    `rate` is its contributions per second, `contributed` their number so far, and `share` its part, 0 to 1,
    of all contributions; they are None if they are not counted. `trouble` is a word or two, "" if there is
    none. `runs` is True if systemd reported last that it runs, False before that.
    """

    name: str
    host: str = ""
    address: str = ""
    rate: float | None = None
    share: float | None = None
    contributed: int | None = None
    restarts: int = 0
    trouble: str = ""
    runs: bool = False

    @property
    def short(self) -> Text:
        """The task's name, rate, share and trouble, as one text; what is unknown is left out.

        Example: "worker1 4.2/s 25% (slow, 1 restart)". A task with trouble is in the style of a warning.
        """
        trouble = ", ".join(word for word in (self.trouble, self._restarts) if word)
        rate = "" if self.rate is None else rate_of(self.rate)
        return self._text((self.name, rate, self._share, f"({trouble})" if trouble else ""), " ")

    def full(self, unit: str) -> Text:
        """Return all that is known about the task in a line; what is unknown is left out.

        `unit` is the noun of its rate, such as "steps".
        """
        words = (
            f"{self.name} on {self.host}",
            "" if self.rate is None else rate_of(self.rate, unit),
            self._share,
            "" if self.contributed is None else f"{self.contributed} {unit}",
            self._restarts,
            self.trouble or ("runs" if self.runs else ""),
            self.address,
        )
        return self._text(words, "  ")

    def _text(self, words: Iterable[str], gap: str) -> Text:
        return Text(gap.join(word for word in words if word), "warning" if self.trouble else "plain")

    @property
    def _restarts(self) -> str:
        return counted(self.restarts, "restart") if self.restarts else ""

    @property
    def _share(self) -> str:
        if self.share is None:
            return ""
        return f"{self.share:.0%}" if self.share >= 0.0995 or not self.share else f"{self.share:.1%}"


def worker_pieces(workers: Sequence[TaskState]) -> list[Text]:
    """Return texts about the workers: one for each of at most eight, else a summary and the exceptions.

    The exceptions are the workers that `differs` names, at most six by name. [] without workers.
    """
    rates = [worker.rate for worker in workers if worker.rate is not None]
    if len(workers) <= WORKERS_BY_NAME:
        return [worker.short for worker in workers]
    pieces = [Text(f"{len(workers)} workers")]
    if rates:
        pieces = [
            Text(f"{len(workers)} workers, {rate_of(min(rates))} to {rate_of(max(rates))} each"),
            Text(f"median {rate_of(median(rates))}"),
        ]
    differing = [worker for worker in workers if differs(worker, rates)]
    pieces += [worker.short for worker in differing[:DIFFERING_SHOWN]]
    if len(differing) > DIFFERING_SHOWN:
        pieces.append(Text(f"and {len(differing) - DIFFERING_SHOWN} more that differ", "warning"))
    return pieces


def differs(worker: TaskState, rates: Sequence[float]) -> bool:
    """Return whether a worker has trouble, was restarted, or is far from the median of the `rates`.

    Far is less than half, or more than twice the median. A worker without a rate is not far.
    """
    if worker.trouble or worker.restarts:
        return True
    usual = median(rates) if rates else 0.0
    return worker.rate is not None and not SLOW_SHARE * usual <= worker.rate <= usual / SLOW_SHARE


def serving_pieces(serving: Sequence[TaskState]) -> list[Text]:
    """Return texts about the tasks that only serve: one for each with a problem, then one for all that run.

    Of more than four that run, the text has only their numbers, such as "5 ps run". [] for no tasks.
    """
    running = [task.name for task in serving if task.runs]
    pieces = [task.short for task in serving if task.trouble]
    if running:
        kinds = Counter(split_name(task)[0] for task in running)
        many = [f"{count} {kind}" for kind, count in kinds.items()]
        named = ", ".join(running if len(running) <= PS_BY_NAME else many)
        pieces.append(Text(f"{named} {'runs' if len(running) == 1 else 'run'}"))
    return pieces

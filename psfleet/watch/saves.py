"""Where the tasks of a program save, told once for each place: what comes home, and what does not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from psfleet.watch.notices import Notice
from psfleet.watch.wording import in_a_line
from trainer.host.saved_places import COLLECTED, SavedPlace

# Of one task: they are a host's words.
_MOST_TOLD = 5


@dataclass
class Saves:
    """The places of each task that people were told of."""

    _told: dict[str, set[str]] = field(default_factory=dict)

    def look(self, task: str, places: Sequence[SavedPlace]) -> Iterator[Notice]:
        """Take the places that a task has noted, and tell of new ones; not of those that are always there."""
        for place in places:
            told, brought = self._told.setdefault(task, set()), place.brought_to(task)
            usual = place.is_elsewhere or brought.partition("/")[0] in COLLECTED
            if usual or place.path in told or len(told) >= _MOST_TOLD:
                continue
            told.add(place.path)
            where = f"{task} saves to {in_a_line(place.path, 120)}"
            if brought:
                yield Notice(f"{where}: in the run's folder it will be {in_a_line(brought, 160)}", good=True)
            else:
                yield Notice(f"{where}, which ends with the task: only what is below /tmp comes home")

"""Notices about where a program's tasks save, and whether the files will be collected; one for each place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from plugins.module_utils.saved_places import COLLECTED, SavedPlace
from psfleet.watch.notices import Notice
from psfleet.watch.screen_text import in_a_line

# The most places of one task that are reported, because a host names them.
_MOST_REPORTED = 5


@dataclass
class Saves:
    """Remembers the places where tasks save that were reported before, of each task."""

    _reported: dict[str, set[str]] = field(default_factory=dict)

    def update(self, task: str, places: Sequence[SavedPlace]) -> Iterator[Notice]:
        """Yield a notice for each new place where the task saves, and say whether it will be collected.

        There is no notice for places elsewhere, such as an object store, for the folders that every run has
        (COLLECTED), and after the first five places of a task.
        """
        for place in places:
            reported, brought = self._reported.setdefault(task, set()), place.path_on_controller(task)
            usual = place.is_elsewhere or brought.partition("/")[0] in COLLECTED
            if usual or place.path in reported or len(reported) >= _MOST_REPORTED:
                continue
            reported.add(place.path)
            where = f"{task} saves to {in_a_line(place.path, 120)}"
            if brought:
                yield Notice(f"{where}: in the run's folder it will be {in_a_line(brought, 160)}", good=True)
            else:
                yield Notice(f"{where}, which is deleted with the task: only files below /tmp are collected")

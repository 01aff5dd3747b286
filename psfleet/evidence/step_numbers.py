"""Whether the steps that workers recorded can be the global steps that were made, each another one."""

import heapq
from collections.abc import Iterable

from psfleet.evidence.answer import Findings, Good, check, counted
from psfleet.evidence.recorded_run import Run, Window


@check
def steps_numbered(findings: Findings, run: Run) -> Good:
    """Each recorded step has a global step of its own, among those that were made in its window.

    A step lies in the range (before, after] of its window. Workers that move a global step of their own each
    record more steps of some range than it has numbers, however their counts add up over the whole run.
    """
    told = sum(window.steps for window in run.windows)
    moved = run.global_steps - min((min(w.before, w.after) for w in run.windows), default=0)
    end = first_beyond(run.windows)
    if end is not None:
        told_by_then = sum(window.steps for window in run.windows if window.after <= end)
        findings.wrong.append(
            f"{told_by_then} steps are recorded up to global step {end}, and there windows have more steps"
            " than numbers: the workers did not move one global step"
        )
    return f"{counted(told, 'recorded step')} among {moved} global steps", {"recorded": told, "made": moved}


def first_beyond(windows: Iterable[Window]) -> int | None:
    """Return the end of the first window whose steps find no numbers left; None where all find theirs.

    Numbers are given in order, each to the step whose window ends first: where that fails, every way does
    (Jackson 1955, earliest due date first).
    """
    ranges = sorted((min(w.before, w.after), max(w.before, w.after), w.steps) for w in windows if w.steps > 0)
    open_windows: list[tuple[int, int]] = []
    number, place = 0, 0  # the last number that was given
    while place < len(ranges) or open_windows:
        if not open_windows:
            number = max(number, ranges[place][0])
        while place < len(ranges) and ranges[place][0] <= number:
            _, end, steps = ranges[place]
            heapq.heappush(open_windows, (end, steps))
            place += 1
        end, steps = heapq.heappop(open_windows)
        until = min(end, ranges[place][0]) if place < len(ranges) else end
        given = max(min(steps, until - number), 0)
        number += given
        if given < steps:
            if number >= end:
                return end
            heapq.heappush(open_windows, (end, steps - given))
    return None

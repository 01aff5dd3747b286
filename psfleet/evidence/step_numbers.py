"""Checks that the recorded steps fit the numbers of the global step: each step needs a number of its own."""

import heapq
from collections.abc import Iterable, Iterator, Sequence

from psfleet.evidence.answer import Findings, Good, counted
from psfleet.evidence.card import DEPLOY, Card, Group, check
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import Window


@check(
    Card(
        Group.SHARING,
        holds="each recorded step can get a global step of its own, among those that its record covers",
        fails=(
            "in some range the workers recorded more steps than there are global steps: each worker moved a "
            "global step of its own"
        ),
        unknown="never",
        advice=(
            "The workers recorded more steps than the global step counted: each worker moved its own "
            f"global step. {DEPLOY}"
        ),
        models="",
        programs="if all workers recorded steps, unless synchronous, and the global step never fell",
    )
)
def steps_numbered(findings: Findings, run: Run) -> Good:
    """Check that each recorded step can have a global step of its own, among those made in its window.

    A step lies in the range (before, after] of its window, unless it is `unplaced`. Workers that each move a
    global step of their own record more steps in some range than the range has numbers, even if their counts
    add up over the whole run. Figures: steps `recorded`, and global steps `made`.
    """
    recorded = sum(window.steps for window in run.windows)
    moved = run.global_steps - min((min(w.before, w.after) for w in run.windows), default=0)
    lives = [process.windows for worker in run.workers for process in worker.processes]
    end = first_overfull_end(span for windows in lives for span in spans_of(windows))
    if end is not None:
        by_then = sum(window.steps for window in run.windows if window.after <= end)
        findings.wrong.append(
            f"{by_then} steps are recorded up to global step {end}, more than the global step has numbers "
            "there: the workers did not move one global step"
        )
    return f"{counted(recorded, 'recorded step')} among {moved} global steps", {
        "recorded": recorded,
        "made": moved,
    }


def spans_of(windows: Sequence[Window]) -> Iterator[tuple[int, int, int]]:
    """Yield ranges (before, after, count): `count` of a process's steps lie in the range (before, after].

    `windows` are the process's, in order. Each yields its own range, without its `unplaced` steps. These
    yield a second range: from the begin of the previous window (of the first window: from 0) to the end of
    the next. Unplaced steps of the last window have no known end, so they are left out. All unplaced steps
    are left out if a window has more of them than steps.
    """
    anywhere = any(window.unplaced > window.steps for window in windows)
    for number, window in enumerate(windows):
        unplaced = min(window.unplaced, window.steps)
        yield min(window.before, window.after), max(window.before, window.after), window.steps - unplaced
        if unplaced and not anywhere and number + 1 < len(windows):
            first = windows[number - 1].before if number else 0
            after = max(window.after, windows[number + 1].after)
            yield min(first, window.before, after), after, unplaced


def first_overfull_end(spans: Iterable[tuple[int, int, int]]) -> int | None:
    """Return the end of the first span whose steps outnumber the free numbers; None if every step gets one.

    A span is (before, after, count), as `spans_of` yields it. Numbers are assigned in order, each to the step
    whose window ends first. If that fails, every assignment fails (Jackson 1955, earliest due date first).
    Example: first_overfull_end([(0, 2, 2), (0, 2, 1)]) -> 2
    """
    ranges = sorted(span for span in spans if span[2] > 0)
    open_windows: list[tuple[int, int]] = []
    number, place = 0, 0  # the last number that was assigned
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

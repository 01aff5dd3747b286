"""Checks that the logs of a run's tasks match the patterns that the user set."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from psfleet.carry.deadlines import TooLateError, within
from psfleet.carry.earlier_files import lives
from psfleet.evidence.answer import Findings, Good, listed
from psfleet.evidence.card import Card, Group, check
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import LogPattern
from psfleet.evidence.untrusted_files import refuse_special
from trainer.contract.rules import to_number

LONGEST_LINE = 1_000_000  # longer ones are searched in parts
VARIABLE = "training_evidence_log_patterns"
# Some patterns take practically forever, such as (a+)+$ on a line of a.
SECONDS_FOR_A_LOG = 30


@check(
    Card(
        Group.LOGS,
        holds="the logs match every pattern",
        fails="a pattern does not occur, or the number in its last match is out of range",
        unknown="a log is missing, or no task of the run matches `tasks`",
        advice="Compare the patterns of training_evidence_log_patterns with what the logs say.",
        models="with `training_evidence_log_patterns`",
        programs="with `training_evidence_log_patterns`",
    )
)
def log_patterns(findings: Findings, run: Run, patterns: Sequence[LogPattern]) -> Good:
    """Check that every pattern occurs in the log of each of its tasks, with its number in range.

    Figures: `last_matches`, {"task: pattern": text of the last match}.
    """
    found: dict[str, str] = {}
    names = [task.name for task in run.expected]
    for number, pattern in enumerate(patterns):
        matching = [name for name in names if fnmatchcase(name, pattern.tasks)]
        if not matching:
            findings.lacking.append(
                f"{VARIABLE}[{number}].tasks is {pattern.tasks!r}, and the run has no such task; "
                f"it has {', '.join(names)}"
            )
        for name in matching:
            _search_in_time(lives(run.folder, f"logs/{name}.out"), pattern, findings, found)
    return listed(f"{name} {text!r}" for name, text in found.items()), {"last_matches": found}


def _search_in_time(
    logs: Sequence[Path], pattern: LogPattern, findings: Findings, found: dict[str, str]
) -> None:
    log = logs[-1]
    try:
        with within(SECONDS_FOR_A_LOG):
            _search_logs(logs, pattern, findings, found)
    except TooLateError:
        too_long = f"takes longer than {SECONDS_FOR_A_LOG} s for logs/{log.name}: ask for a simpler one"
        findings.lacking.append(f"the pattern {pattern.pattern.pattern!r} of {VARIABLE} {too_long}")


def _search_logs(
    logs: Sequence[Path], pattern: LogPattern, findings: Findings, found: dict[str, str]
) -> None:
    """Search all logs of one task, the oldest first, as if they were one log.

    The last match is put into `found` as {"task: pattern": text}. No match, or a number out of range, is a
    contradiction; a log that cannot be read is missing evidence.
    """
    last, log = None, logs[-1]
    try:
        for life in logs:
            refuse_special(life)
            with life.open(encoding="utf-8", errors="replace") as lines:
                for line in iter(partial(lines.readline, LONGEST_LINE), ""):
                    for last in pattern.pattern.finditer(line):  # noqa: B007 - the last match counts
                        pass
    except OSError as error:
        findings.lacking.append(f"logs/{log.name}: {error.strerror}")
        return
    if last is None:
        findings.wrong.append(f"{log.stem} never printed {pattern.pattern.pattern!r}")
        return
    found[f"{log.stem}: {pattern.pattern.pattern}"] = last[0]
    if pattern.range.bounded:
        try:
            number = to_number(last[1])
            problem = "" if number in pattern.range else f"{number:g}, expected {pattern.range}"
        except ValueError:
            problem = f"{last[1]!r} is not a finite number"
        findings.wrong += [f"{log.stem} printed {last[0]!r}: {problem}"] if problem else []

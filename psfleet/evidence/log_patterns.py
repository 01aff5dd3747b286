"""What the logs of a run's tasks must say, by patterns that people give."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.goals import Range, close_name, optional_number, to_number
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.untrusted_files import refuse_special

_KEYS = ("tasks", "pattern", "minimum", "maximum")
VARIABLE = "training_evidence_log_patterns"


@dataclass(frozen=True)
class LogPattern:
    """In the log of each task that the glob `tasks` matches, a line must match `pattern`.

    With a bound, the number that the pattern's first group holds in the last such line must be in range.
    """

    tasks: str
    pattern: re.Pattern[str]
    range: Range

    def as_json(self) -> dict[str, object]:
        """Return the pattern as people write it."""
        return {"tasks": self.tasks, "pattern": self.pattern.pattern, **self.range.as_json()}


@check
def log_patterns(findings: Findings, run: Run, patterns: Sequence[LogPattern]) -> Good:
    """Every pattern occurs in the log of each task that it is for, with its number in range."""
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
            _look_into_log(run.folder / "logs" / f"{name}.out", pattern, findings, found)
    return listed(f"{name} {text!r}" for name, text in found.items()), {"last_matches": found}


def _look_into_log(log: Path, pattern: LogPattern, findings: Findings, found: dict[str, str]) -> None:
    last = None
    try:
        refuse_special(log)
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for last in pattern.pattern.finditer(line):  # noqa: B007 - the last one of the last line
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
            problem = f"{last[1]!r} is no finite number"
        findings.wrong += [f"{log.stem} printed {last[0]!r}: {problem}"] if problem else []


def parse_log_patterns(value: object, name: str) -> tuple[tuple[LogPattern, ...], list[str]]:
    """Return the patterns of a list of mappings, and what is wrong with it, each entry by its position."""
    if value is None:
        return (), []
    if not isinstance(value, list | tuple):
        return (), [f"{name} is {value!r}; expected a list of mappings with {', '.join(_KEYS)}"]
    patterns, problems = [], []
    for number, entry in enumerate(value):
        try:
            patterns.append(_parse(entry))
        except ValueError as error:  # noqa: PERF203 - every problem is named
            problems.append(f"{name}[{number}]{error}")
    return tuple(patterns), problems


def _parse(entry: object) -> LogPattern:
    """Return one pattern. Raises ValueError with the rest of a sentence that begins with the entry's name."""
    if not isinstance(entry, Mapping):
        raise ValueError(f" is {entry!r}; expected a mapping with {', '.join(_KEYS)}")
    _refuse_unknown_keys(entry)
    for key, what in (("tasks", "a glob of tasks such as worker*"), ("pattern", "a regular expression")):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise ValueError(f".{key} is {entry.get(key)!r}; expected {what}")
    try:
        expression = re.compile(entry["pattern"])
    except re.error as error:
        raise ValueError(f".pattern is {entry['pattern']!r}; it is no regular expression: {error}") from error
    wanted = Range(_bound(entry, "minimum"), _bound(entry, "maximum"))
    if wanted.bounded and not expression.groups:
        raise ValueError(
            f".pattern is {entry['pattern']!r}; expected the number in parentheses,"
            " for there is a minimum or a maximum"
        )
    if wanted.empty:
        raise ValueError(f".minimum is {wanted.minimum:g}, above its maximum {wanted.maximum:g}")
    return LogPattern(entry["tasks"], expression, wanted)


def _refuse_unknown_keys(entry: Mapping[object, object]) -> None:
    for key in entry:
        if key not in _KEYS:
            raise ValueError(f".{key} is nothing that a pattern has; {close_name(str(key), _KEYS)}")


def _bound(entry: Mapping[str, object], key: str) -> float | None:
    try:
        return optional_number(entry.get(key))
    except ValueError as error:
        raise ValueError(f".{key} is {entry[key]!r}; expected a number or null") from error

"""What the logs of a run's tasks must say, by patterns that people give."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from trainer.evidence.check import Check, Findings, listed
from trainer.evidence.numbers import optional_number, to_number
from trainer.evidence.run import Run
from trainer.evidence.whole_file import refuse_special

_KEYS = ("tasks", "pattern", "minimum", "maximum")
VARIABLE = "training_evidence_log_patterns"


@dataclass(frozen=True)
class LogPattern:
    """In the log of each task that the glob `tasks` matches, a line must match `pattern`.

    With a bound, the number that the pattern's first group holds in the last such line must be in range.
    """

    tasks: str
    pattern: re.Pattern[str]
    minimum: float | None = None
    maximum: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether a number is asked for."""
        return self.minimum is not None or self.maximum is not None

    @property
    def low(self) -> float:
        """The least number that is good enough."""
        return -math.inf if self.minimum is None else self.minimum

    @property
    def high(self) -> float:
        """The greatest number that is good enough."""
        return math.inf if self.maximum is None else self.maximum

    def as_json(self) -> dict[str, object]:
        """Return the pattern as people write it."""
        return {
            "tasks": self.tasks,
            "pattern": self.pattern.pattern,
            "minimum": self.minimum,
            "maximum": self.maximum,
        }

    @property
    def expected(self) -> str:
        """The range in words."""
        bounds = [
            f"{words} {bound:g}"
            for words, bound in (("at least", self.minimum), ("at most", self.maximum))
            if bound is not None
        ]
        return " and ".join(bounds)

    def last_match(self, log: Path) -> re.Match[str] | None:
        """Return the last match of the last line that has one. Raises OSError."""
        last = None
        refuse_special(log)
        with log.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                for match in self.pattern.finditer(line):
                    last = match
        return last

    def problem_of(self, match: re.Match[str]) -> str:
        """Return why what was matched is not good enough; empty where it is."""
        if not self.bounded:
            return ""
        try:
            number = to_number(match[1])
        except ValueError:
            return f"{match[1]!r} is no finite number"
        return "" if self.low <= number <= self.high else f"{number:g}, expected {self.expected}"


def log_patterns_found(run: Run, patterns: Sequence[LogPattern]) -> Check:
    """Every pattern occurs in the log of each task that it is for, with its number in range."""
    findings = Findings()
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
    return findings.conclude(
        "log_patterns",
        listed(f"{name} {text!r}" for name, text in found.items()),
        {"last_matches": found},
    )


def _look_into_log(log: Path, pattern: LogPattern, findings: Findings, found: dict[str, str]) -> None:
    try:
        match = pattern.last_match(log)
    except OSError as error:
        findings.lacking.append(f"logs/{log.name}: {error.strerror}")
        return
    if match is None:
        findings.wrong.append(f"{log.stem} never printed {pattern.pattern.pattern!r}")
        return
    found[f"{log.stem}: {pattern.pattern.pattern}"] = match[0]
    problem = pattern.problem_of(match)
    if problem:
        findings.wrong.append(f"{log.stem} printed {match[0]!r}: {problem}")


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
    pattern = LogPattern(entry["tasks"], expression, _bound(entry, "minimum"), _bound(entry, "maximum"))
    if pattern.bounded and not expression.groups:
        raise ValueError(
            f".pattern is {entry['pattern']!r}; expected the number in parentheses,"
            " for there is a minimum or a maximum"
        )
    if pattern.low > pattern.high:
        raise ValueError(f".minimum is {pattern.low:g}, above its maximum {pattern.high:g}")
    return pattern


def _refuse_unknown_keys(entry: Mapping[object, object]) -> None:
    for key in entry:
        if key not in _KEYS:
            close = get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
            raise ValueError(f".{key} is nothing that a pattern has; {hint}")


def _bound(entry: Mapping[str, object], key: str) -> float | None:
    try:
        return optional_number(entry.get(key))
    except ValueError as error:
        raise ValueError(f".{key} is {entry[key]!r}; expected a number or null") from error

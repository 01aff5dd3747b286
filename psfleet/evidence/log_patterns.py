"""What the logs of a run's tasks must say, by patterns that people give."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.goals import BOUND, Range
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.untrusted_files import refuse_special
from trainer.contract.settings import Rule, SettingProblem, SettingsError, close_names, convert_all, to_number

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


def _to_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(value)
    return value


def _to_pattern(entry: object) -> LogPattern:
    if not isinstance(entry, Mapping):
        raise ValueError(entry)
    whole = {"tasks": None, "pattern": None} | {str(key): value for key, value in entry.items()}
    given, problems = convert_all(whole, _KEYS, close_names("a key of a pattern", _KEYS), ".")
    if problems:
        raise SettingsError(problems)
    text, wanted = given["pattern"], Range(given.get("minimum"), given.get("maximum"))
    try:
        expression = re.compile(text)
    except re.error as error:
        raise SettingsError([SettingProblem(".pattern", text, f"a regular expression ({error})")]) from error
    if wanted.bounded and not expression.groups:
        expected = "the number in parentheses, for there is a minimum or a maximum"
        raise SettingsError([SettingProblem(".pattern", text, expected)])
    if wanted.empty:
        expected = f"at most its maximum {wanted.maximum:g}"
        raise SettingsError([SettingProblem(".minimum", wanted.minimum, expected)])
    return LogPattern(given["tasks"], expression, wanted)


def _to_patterns(value: object) -> tuple[LogPattern, ...]:
    if not isinstance(value, list | tuple | None):
        raise ValueError(value)
    entries = {f"[{number}]": entry for number, entry in enumerate(value or ())}
    patterns, problems = convert_all(entries, dict.fromkeys(entries, _PATTERN), str)
    if problems:
        raise SettingsError(problems)
    return tuple(patterns.values())


_KEYS = {
    "tasks": Rule("a glob of tasks such as worker*", _to_text),
    "pattern": Rule("a regular expression", _to_text),
    "minimum": BOUND,
    "maximum": BOUND,
}
_PATTERN = Rule(f"a mapping with {', '.join(_KEYS)}", _to_pattern)
LOG_PATTERNS = Rule(f"a list of mappings with {', '.join(_KEYS)}", _to_patterns)

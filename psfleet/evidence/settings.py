"""The thresholds of the verdict. Each is a variable `training_evidence_X` of the role training_evidence."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainer.contract.model_card import Card
from trainer.contract.rules import (
    Rule,
    SettingProblem,
    SettingsError,
    checked,
    close_names,
    converted,
    number,
    or_null,
    setting,
    to_number,
    to_text,
)


@dataclass(frozen=True)
class Range:
    """A range of acceptable numbers, bounds included; a bound of None is no bound."""

    minimum: float | None = None
    maximum: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether the range has a minimum or a maximum."""
        return self != Range()

    @property
    def empty(self) -> bool:
        """Whether no number lies in the range: both bounds are set, and the minimum is above the maximum."""
        return self.minimum is not None and self.maximum is not None and self.minimum > self.maximum

    def __contains__(self, value: float) -> bool:
        """Return whether a number lies in the range; a bound itself does, nan only if there is no bound."""
        above = self.minimum is None or self.minimum <= value
        return above and (self.maximum is None or value <= self.maximum)

    def __str__(self) -> str:
        """Return the range in words, such as "at least 0.9", "at most 3" or "from 1 to 2".

        The range must have a bound.
        """
        if self.maximum is None:
            return f"at least {self.minimum:g}"
        least = "at most" if self.minimum is None else f"from {self.minimum:g} to"
        return f"{least} {self.maximum:g}"


@dataclass(frozen=True)
class Goal:
    """The range in which a metric must be; `words` describe it, by default the words of the range.

    `of_each` is the start of the names of metrics that show the same for one worker alone: with "error_of_",
    `error_of_worker1` is the metric of worker1. "" if there are none.
    """

    metric: str
    range: Range
    words: str = ""
    of_each: str = ""

    @classmethod
    def of_card(cls, metric: str, content: Mapping[str, Any], metrics: Mapping[str, float]) -> "Goal | None":
        """Return the goal of a metric from a model's card; `content` is the card's entry for this metric.

        The range is `target` plus and minus `tolerance`, or from `minimum` to `maximum`. With `level`, these
        bounds are added to the metric of that name in `metrics`; return None if `metrics` lack it.
        """
        of_each = content.get("of_each", "")
        if "target" in content:
            target, tolerance = content["target"], content["tolerance"]
            around = Range(target - tolerance, target + tolerance)
            return cls(metric, around, f"{target:g} +- {tolerance:g}", of_each)
        bounds = {name: content[name] for name in ("minimum", "maximum") if name in content}
        if "level" not in content:
            return cls(metric, Range(**bounds), of_each=of_each)
        if (level := metrics.get(content["level"])) is None:
            return None
        wanted = Range(**{name: level + bound for name, bound in bounds.items()})
        return cls(metric, wanted, f"{wanted}: so many examples let a model reach {level:.4f}", of_each)

    def missed_by(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Return the names of the workers whose own metric is out of range, such as ("worker1",).

        A worker's own metric is named `of_each` plus the worker's name. Return () if none is out of range, or
        if `of_each` is "".
        """
        return tuple(
            name.removeprefix(self.of_each)
            for name, value in metrics.items()
            if self.of_each and name.startswith(self.of_each) and value not in self.range
        )

    def __str__(self) -> str:
        """Return the goal in words: `words`, or if they are "", the words of the range."""
        return self.words or str(self.range)


@dataclass(frozen=True)
class LogPattern:
    """A pattern that must occur in the log of each task that the glob `tasks` matches.

    If `range` has a bound, the number in the pattern's first group must be in range at the last match in the
    log.
    """

    tasks: str
    pattern: re.Pattern[str]
    range: Range


_BOUNDS = dict.fromkeys(("minimum", "maximum"), or_null(Rule("a number", to_number), "none"))


def _to_range(bounds: object) -> Range:
    if not isinstance(bounds, Mapping):
        raise ValueError(bounds)
    wanted = Range(**converted(bounds, _BOUNDS, close_names("a bound", _BOUNDS), "."))
    if wanted.empty or not wanted.bounded:
        raise ValueError(bounds)
    return wanted


def _to_goals(value: object) -> dict[str, Goal]:
    if not isinstance(value, Mapping | None):
        raise ValueError(value)
    ranges = converted(value or {}, dict.fromkeys(value or {}, _RANGE), prefix=".")
    return {str(metric): Goal(str(metric), wanted) for metric, wanted in ranges.items()}


_RANGE = Rule(
    "a mapping with a number as minimum, maximum or both, the minimum not above the maximum", _to_range
)
_GOALS = Rule("a mapping of metrics, such as accuracy: {minimum: 0.9}", _to_goals)


def _to_pattern(entry: object) -> LogPattern:
    if not isinstance(entry, Mapping):
        raise ValueError(entry)
    whole: dict[str, object] = {"tasks": None, "pattern": None}
    given = converted(whole | dict(entry), _KEYS, close_names("a key of a pattern", _KEYS), ".")
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
    return tuple(converted(entries, dict.fromkeys(entries, _PATTERN)).values())


_KEYS = {
    "tasks": checked("a glob of tasks such as worker*", to_text, bool),
    "pattern": checked("a regular expression", to_text, bool),
    **_BOUNDS,
}
_PATTERN = Rule(f"a mapping with {', '.join(_KEYS)}", _to_pattern)
_PATTERNS = Rule(f"a list of mappings with {', '.join(_KEYS)}", _to_patterns)
_AMOUNT, _PART = number(0), number(0, 1)


@dataclass(frozen=True)
class EvidenceSettings:
    """The thresholds that a run must reach to be proven; the role's README describes each."""

    minimum_share: float = setting(0.2, _PART)
    minimum_overlap: float = setting(0.5, _PART)
    minimum_loss_reduction: float = setting(0, _PART)
    target_loss: float | None = setting(None, or_null(_AMOUNT))
    loss_patience: float = setting(0.1, _PART)
    # A few thousand bytes prove nothing: the launcher's probes of other tasks' ports, of about 330 bytes
    # each, must not pass for an exchange.
    minimum_exchanged_bytes: float = setting(65536, _AMOUNT)
    goals: Mapping[str, Goal] = field(default_factory=dict, metadata={"rule": _GOALS})
    log_patterns: tuple[LogPattern, ...] = setting((), _PATTERNS)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], prefix: str = "") -> "EvidenceSettings":
        """Return the settings in `values`; a missing setting has its default, and "0.5" counts as 0.5.

        Raises SettingsError naming every setting (with `prefix` before it) that is unknown or out of range,
        and every invalid entry of a list or mapping.
        """
        rules = {one.name: one.metadata["rule"] for one in fields(cls)}
        unknown = close_names("a setting of the verdict", rules, prefix)
        return cls(**converted(values, rules, unknown, prefix))

    def as_dict(self) -> dict[str, Any]:
        """Return {name: value} of every setting, as people write it; `from_mapping` accepts the result."""
        return vars(self) | {
            "goals": {metric: asdict(goal.range) for metric, goal in self.goals.items()},
            "log_patterns": [
                {"tasks": one.tasks, "pattern": one.pattern.pattern, **asdict(one.range)}
                for one in self.log_patterns
            ],
        }

    def goals_of(self, card: Card | None, metrics: Mapping[str, float]) -> tuple[Goal, ...]:
        """Return the goals on a model's card, then the user's own; () if there are none.

        The user's goal replaces the card's goal for the same metric. `metrics` are the model's, from which a
        goal relative to another metric is computed; without that metric, the goal is left out.
        """
        content = card.goals if card else {}
        of_card = (
            Goal.of_card(name, goal, metrics) for name, goal in content.items() if name not in self.goals
        )
        return (*filter(None, of_card), *self.goals.values())

    def target_loss_of(self, card: Card | None, metrics: Mapping[str, float]) -> float | None:
        """Return the loss that a run must reach: the user's target, else the card's; None if neither is set.

        A card's target may be relative to a metric; None if `metrics` lack this metric.
        """
        target = card.target_loss if card and self.target_loss is None else self.target_loss
        if not isinstance(target, Mapping):
            return target
        level = metrics.get(target["level"])
        return None if level is None else level + target["maximum"]

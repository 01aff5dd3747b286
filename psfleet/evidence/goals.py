"""Goals for what is evaluated: ranges, in which a metric or a number in a log must be."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from trainer.contract.settings import Rule, SettingsError, convert_all, or_null, to_number

BOUND = or_null(Rule("a number", to_number), "none")


@dataclass(frozen=True)
class Range:
    """The numbers that are good enough; a bound that is None is none."""

    minimum: float | None = None
    maximum: float | None = None

    @property
    def bounded(self) -> bool:
        """Whether anything is asked for."""
        return self != Range()

    @property
    def empty(self) -> bool:
        """Whether no number can be in it."""
        return self.minimum is not None and self.maximum is not None and self.minimum > self.maximum

    def __contains__(self, value: float) -> bool:
        """Whether a number is good enough; never nan, where anything is asked for."""
        above = self.minimum is None or self.minimum <= value
        return above and (self.maximum is None or value <= self.maximum)

    def __str__(self) -> str:
        """The range in words."""
        if self.maximum is None:
            return f"at least {self.minimum:g}"
        least = "at most" if self.minimum is None else f"from {self.minimum:g} to"
        return f"{least} {self.maximum:g}"

    def as_json(self) -> dict[str, float | None]:
        """Return the bounds as people write them."""
        return asdict(self)


@dataclass(frozen=True)
class Goal:
    """The range in which a metric must be; `words` is how to say it.

    `of_each` is how metrics are named that tell the same of one worker alone, less the worker's name.
    """

    metric: str
    range: Range
    words: str = ""
    of_each: str = ""

    @classmethod
    def around(cls, metric: str, target: float, tolerance: float) -> "Goal":
        """Return the goal to be at most `tolerance` away from `target`."""
        return cls(metric, Range(target - tolerance, target + tolerance), f"{target:g} +- {tolerance:g}")

    def missed_by(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Return who misses the goal alone, such as ("worker1",), as far as metrics tell workers apart."""
        return tuple(
            name.removeprefix(self.of_each)
            for name, value in metrics.items()
            if self.of_each and name.startswith(self.of_each) and value not in self.range
        )

    def __str__(self) -> str:
        """The goal in words."""
        return self.words or str(self.range)


def _to_range(bounds: object) -> Range:
    if not isinstance(bounds, Mapping) or not bounds.keys() <= {"minimum", "maximum"}:
        raise ValueError(bounds)
    given, problems = convert_all(bounds, dict.fromkeys(bounds, BOUND), str)
    wanted = Range(**given)
    if problems or wanted.empty or not wanted.bounded:
        raise ValueError(bounds)
    return wanted


def _to_goals(value: object) -> dict[str, Goal]:
    if not isinstance(value, Mapping | None):
        raise ValueError(value)
    bounds = {str(metric): bound for metric, bound in (value or {}).items()}
    ranges, problems = convert_all(bounds, dict.fromkeys(bounds, _RANGE), str, ".")
    if problems:
        raise SettingsError(problems)
    return {metric: Goal(metric, wanted) for metric, wanted in ranges.items()}


_RANGE = Rule(
    "a mapping with a number as minimum, maximum or both, the minimum not above the maximum", _to_range
)
GOALS = Rule("a mapping of metrics, such as accuracy: {minimum: 0.9}", _to_goals)

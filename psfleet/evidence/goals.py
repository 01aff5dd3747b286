"""Numbers as people ask for them in an inventory or on the command line, and goals for what is evaluated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches


def to_number(value: object) -> float:
    """Return 0.5 for 0.5 and for "0.5". Raises ValueError for anything that is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def optional_number(value: object) -> float | None:
    """Return the number, None for null and for an empty text. Raises ValueError as `to_number`."""
    return None if value in (None, "") else to_number(value)


def close_name(name: str, names: Sequence[str], prefix: str = "") -> str:
    """Say which of the names that there are may have been meant."""
    close = get_close_matches(name, names, n=1)
    return f"did you mean {prefix}{close[0]}?" if close else f"there are {', '.join(names)}"


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
        return (
            f"at most {self.maximum:g}"
            if self.minimum is None
            else f"from {self.minimum:g} to {self.maximum:g}"
        )

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


def parse_goals(value: object, name: str) -> tuple[dict[str, Goal], list[str]]:
    """Return metric -> goal of a mapping such as {"accuracy": {"minimum": 0.9}}, and what is wrong in it."""
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        return {}, [f"{name} is {value!r}; expected a mapping of metrics, such as accuracy: {{minimum: 0.9}}"]
    goals, problems = {}, []
    for metric, bounds in value.items():
        try:
            goals[str(metric)] = Goal(str(metric), _parse_range(bounds))
        except ValueError as error:  # noqa: PERF203 - the others count
            expected = str(error) or "expected a mapping with a number as minimum, maximum or both"
            problems.append(f"{name}.{metric} is {bounds!r}; {expected}")
    return goals, problems


def _parse_range(bounds: object) -> Range:
    """Read a mapping of bounds. Raises ValueError, with what is wrong where it is a mapping of numbers."""
    if not isinstance(bounds, Mapping) or not bounds.keys() <= {"minimum", "maximum"}:
        raise ValueError
    try:
        wanted = Range(**{name: optional_number(bound) for name, bound in bounds.items()})
    except ValueError:
        raise ValueError from None
    if wanted.empty:
        raise ValueError("the minimum is above the maximum")
    if not wanted.bounded:
        raise ValueError
    return wanted

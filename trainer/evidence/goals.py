"""What the metrics of a model must reach: of the trainer's own models, and what people ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer.evidence.numbers import optional_number

if TYPE_CHECKING:
    from trainer.evidence.settings import EvidenceSettings


@dataclass(frozen=True)
class Goal:
    """The range in which a metric must be; a bound that is infinite is none. `words` is how to say it.

    `of_each` is how metrics are named that tell the same of one worker alone, less the worker's name.
    """

    metric: str
    minimum: float = -math.inf
    maximum: float = math.inf
    words: str = ""
    of_each: str = ""

    @classmethod
    def around(cls, metric: str, target: float, tolerance: float) -> Goal:
        """Return the goal to be at most `tolerance` away from `target`."""
        return cls(metric, target - tolerance, target + tolerance, f"{target:g} +- {tolerance:g}")

    def reached(self, value: float) -> bool:
        """Whether the value is good enough; never for nan."""
        return self.minimum <= value <= self.maximum

    def missed_by(self, metrics: Mapping[str, float]) -> tuple[str, ...]:
        """Return who misses the goal alone, such as ("worker1",), as far as metrics tell workers apart."""
        return tuple(
            name.removeprefix(self.of_each)
            for name, value in metrics.items()
            if self.of_each and name.startswith(self.of_each) and not self.reached(value)
        )

    def __str__(self) -> str:
        """The goal in words."""
        if self.words:
            return self.words
        if math.isinf(self.maximum):
            return f"at least {self.minimum:g}"
        if math.isinf(self.minimum):
            return f"at most {self.maximum:g}"
        return f"from {self.minimum:g} to {self.maximum:g}"

    def as_json(self) -> dict[str, float | None]:
        """Return the bounds as people write them."""
        return {
            "minimum": None if math.isinf(self.minimum) else self.minimum,
            "maximum": None if math.isinf(self.maximum) else self.maximum,
        }


@dataclass(frozen=True)
class ModelGoals:
    """A model's loss that needs to fall no further, and what its metrics must reach."""

    loss: float
    goals: tuple[Goal, ...]


def goals_of(model: str, settings: EvidenceSettings) -> ModelGoals | None:
    """Return what this model must reach, with what people ask for; None where nobody knows."""
    known = {
        # The noise on y has a standard deviation of 0.33, so no line has a lower loss than 0.11.
        "linear": ModelGoals(
            0.2,
            (
                Goal.around("weight", 2.0, settings.weight_tolerance),
                Goal.around("bias", 10.0, settings.bias_tolerance),
            ),
        ),
        # A model of this accuracy has a loss of about 0.35, and somewhat more where it is sure of nothing.
        "mnist_mlp": ModelGoals(0.5, (Goal("accuracy", minimum=settings.target_accuracy),)),
        "cnn": ModelGoals(0.5, (Goal("accuracy", minimum=settings.target_accuracy),)),
        # Without noise the loss goes to 0, and the numbers of the matrix and the offset to the known ones.
        "placement_demo": ModelGoals(0.01, (Goal("largest_error", maximum=settings.error_tolerance),)),
        # The noise on y has a standard deviation of 0.01. A weight that nobody told is wrong by 1 or more.
        "partition": ModelGoals(
            0.01, (Goal("largest_error", maximum=settings.error_tolerance, of_each="error_of_"),)
        ),
    }
    of_model = known.get(model)
    if of_model is None and not settings.goals:
        return None
    own = [goal for goal in (of_model.goals if of_model else ()) if goal.metric not in settings.goals]
    return ModelGoals(of_model.loss if of_model else 0.0, (*own, *settings.goals.values()))


def parse_goals(value: object, name: str) -> tuple[dict[str, Goal], list[str]]:
    """Return metric -> goal of a mapping such as {"accuracy": {"minimum": 0.9}}, and what is wrong in it."""
    if value is None:
        return {}, []
    if not isinstance(value, Mapping):
        return {}, [f"{name} is {value!r}; expected a mapping of metrics, such as accuracy: {{minimum: 0.9}}"]
    goals, problems = {}, []
    for metric, bounds in value.items():
        goal, problem = _parse_goal(str(metric), bounds)
        if goal is None:
            problems.append(f"{name}.{metric} is {bounds!r}; {problem}")
        else:
            goals[goal.metric] = goal
    return goals, problems


def _parse_goal(metric: str, bounds: object) -> tuple[Goal | None, str]:
    expected = "expected a mapping with a number as minimum, maximum or both"
    if not isinstance(bounds, Mapping) or not bounds.keys() <= {"minimum", "maximum"}:
        return None, expected
    try:
        minimum, maximum = optional_number(bounds.get("minimum")), optional_number(bounds.get("maximum"))
    except ValueError:
        return None, expected
    if minimum is None and maximum is None:
        return None, expected
    if minimum is not None and maximum is not None and minimum > maximum:
        return None, "the minimum is above the maximum"
    return Goal(
        metric, -math.inf if minimum is None else minimum, math.inf if maximum is None else maximum
    ), ""

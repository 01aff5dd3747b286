"""The condition that ends a run before its last step: a metric of an evaluation, compared with a bound."""

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.contract.model_card import Card

_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_FORM = re.compile(rf"\s*([A-Za-z_][A-Za-z0-9_]{{0,99}})\s*([<>]=?)\s*({_NUMBER})\s*")


@dataclass(frozen=True)
class StopCondition:
    """A comparison of a metric with a bound, as in "auc > 0.77"; `comparison` is <, <=, > or >=."""

    metric: str
    comparison: str
    bound_text: str

    @classmethod
    def from_text(cls, text: str) -> "StopCondition":
        """Return the condition in a text such as "auc > 0.77". Raises ValueError for any other text."""
        match = _FORM.fullmatch(text)
        if match is None or not math.isfinite(float(match[3])):
            raise ValueError(text)
        return cls(*match.groups())

    @property
    def bound(self) -> float:
        """The number with which the metric is compared, such as 0.77."""
        return float(self.bound_text)

    def is_met(self, metrics: Mapping[str, float]) -> bool:
        """Return whether the comparison is true for the metric's value in `metrics`, {metric: value}.

        False if the metric is missing or nan.
        """
        value = metrics.get(self.metric, math.nan)
        return bool(_COMPARISONS[self.comparison](value, self.bound))

    def __str__(self) -> str:
        """Return the condition as people write it, such as "auc > 0.77"."""
        return f"{self.metric} {self.comparison} {self.bound_text}"


def condition_in(settings: Mapping[str, Any]) -> StopCondition | None:
    """Return the condition in the setting `stop_when`; None if it is missing, empty or no valid condition."""
    try:
        return StopCondition.from_text(str(settings.get("stop_when") or ""))
    except ValueError:
        return None


def stop_problems(settings: Mapping[str, Any], prefix: str, card: Card | None) -> dict[str, str]:
    """Return {"stop_when": error} if no evaluation can meet the condition; else, or without one, {}.

    No evaluation can if `evaluate_every_steps` is 0, or if `card`, the model's (None: unknown), lacks the
    metric. `prefix` is what people write before the name of a setting, such as "trainer_".
    """
    condition = condition_in(settings)
    if condition is None:
        return {}
    what = f"{prefix}stop_when is {str(condition)!r}"
    if settings.get("evaluate_every_steps") == 0:
        why = f"with {prefix}evaluate_every_steps 0, so that no evaluation decides"
        return {"stop_when": f"{what} {why}; expected an empty text, or {prefix}evaluate_every_steps above 0"}
    if card and condition.metric not in card.metrics:
        known = ", ".join(card.metrics) or "none, for its card names no metric"
        why = f"{prefix}model {settings['model']!r} has no such metric; expected one of {known}"
        return {"stop_when": f"{what}, and {why}"}
    return {}

"""What the verdict asks of a run. Each is a variable `training_evidence_X` of the role training_evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from trainer.evidence.goals import Goal, parse_goals
from trainer.evidence.log_patterns import LogPattern, parse_log_patterns
from trainer.evidence.numbers import optional_number, to_number


@dataclass(frozen=True)
class EvidenceSettings:
    """What a run must reach to be proven.

    Attributes:
        minimum_share: steps of the slowest worker, as a part of an equal share (1 / number of workers).
        minimum_overlap: part of the run's global steps during which every worker was training.
        minimum_loss_reduction: by which part the loss must fall from the run's first tenth to its last.
        target_loss: where the loss must end, and need fall no further; None is the model's own.
        loss_patience: part of the run's windows of steps, its last, in which the loss must be at the target.
        target_accuracy: of `mnist_mlp` and `cnn` on the test images.
        weight_tolerance: of `linear`, around the true weight.
        bias_tolerance: of `linear`, around the true bias.
        error_tolerance: of `placement_demo` and `partition`, for each number that it learns.
        minimum_exchanged_bytes: what each task of a program of one's own must have received, and sent.
        goals: metric -> what the last evaluation must have found.
        log_patterns: what the logs of tasks must say.

    """

    minimum_share: float = 0.2
    minimum_overlap: float = 0.5
    minimum_loss_reduction: float = 0.2
    target_loss: float | None = None
    loss_patience: float = 0.1
    target_accuracy: float = 0.9
    weight_tolerance: float = 0.2
    bias_tolerance: float = 0.2
    error_tolerance: float = 0.05
    # Some thousand bytes prove nothing: the launcher's probes of the other tasks' ports, of some 330 bytes
    # each, must not pass for an exchange.
    minimum_exchanged_bytes: float = 65536
    goals: Mapping[str, Goal] = field(default_factory=dict)
    log_patterns: tuple[LogPattern, ...] = ()

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], prefix: str = "") -> EvidenceSettings:
        """Return the settings that `values` give, defaults for the others; "0.5" is taken as 0.5.

        Raises ValueError naming every setting (with `prefix` before it) that is unknown or out of its range,
        and every entry of a list or mapping that cannot be used.
        """
        problems: list[str] = []
        converted: dict[str, Any] = {}
        for name, value in values.items():
            if name == "goals":
                converted[name], wrong = parse_goals(value, f"{prefix}{name}")
                problems += wrong
            elif name == "log_patterns":
                converted[name], wrong = parse_log_patterns(value, f"{prefix}{name}")
                problems += wrong
            elif name in _RANGES:
                try:
                    converted[name] = _convert(name, value)
                except ValueError:
                    problems.append(f"{prefix}{name} is {value!r}; expected {_expected(name)}")
            else:
                close = get_close_matches(name, _NAMES, n=1)
                hint = f"did you mean {prefix}{close[0]}?" if close else f"there are {', '.join(_NAMES)}"
                problems.append(f"{prefix}{name} is no setting of the verdict; {hint}")
        if problems:
            raise ValueError("; ".join(problems))
        return cls(**converted)

    def as_dict(self) -> dict[str, Any]:
        """Return name -> value of every setting, as people write it."""
        values = {name: getattr(self, name) for name in _NAMES}
        return values | {
            "goals": {metric: goal.as_json() for metric, goal in self.goals.items()},
            "log_patterns": [pattern.as_json() for pattern in self.log_patterns],
        }


_NAMES = tuple(setting.name for setting in fields(EvidenceSettings))
_RANGES = {
    "minimum_share": (0.0, 1.0),
    "minimum_overlap": (0.0, 1.0),
    "minimum_loss_reduction": (0.0, 1.0),
    "target_loss": (0.0, math.inf),
    "loss_patience": (0.0, 1.0),
    "target_accuracy": (0.0, 1.0),
    "weight_tolerance": (0.0, math.inf),
    "bias_tolerance": (0.0, math.inf),
    "error_tolerance": (0.0, math.inf),
    "minimum_exchanged_bytes": (0.0, math.inf),
}
_MAY_BE_NULL = {setting.name for setting in fields(EvidenceSettings) if setting.default is None}


def _convert(name: str, value: object) -> float | None:
    number = optional_number(value) if name in _MAY_BE_NULL else to_number(value)
    if number is None:
        return None
    lowest, highest = _RANGES[name]
    if not lowest <= number <= highest:
        raise ValueError(value)
    return number


def _expected(name: str) -> str:
    lowest, highest = _RANGES[name]
    numbers = (
        f"a number from {lowest:g} to {highest:g}" if math.isfinite(highest) else f"a number >= {lowest:g}"
    )
    return numbers + (", or null for the model's own" if name in _MAY_BE_NULL else "")

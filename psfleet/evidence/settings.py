"""What the verdict asks of a run. Each is a variable `training_evidence_X` of the role training_evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from psfleet.evidence.goals import Goal, Range, close_name, optional_number, parse_goals, to_number
from psfleet.evidence.log_patterns import LogPattern, parse_log_patterns


@dataclass(frozen=True)
class ModelGoals:
    """A model's loss that needs to fall no further, and what its metrics must reach."""

    loss: float
    goals: tuple[Goal, ...]


@dataclass(frozen=True)
class EvidenceSettings:
    """What a run must reach to be proven; the role's README says what each asks for."""

    minimum_share: float = 0.2
    minimum_overlap: float = 0.5
    minimum_loss_reduction: float = 0.2
    target_loss: float | None = None  # None is the model's own
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
    def from_mapping(cls, values: Mapping[str, object], prefix: str = "") -> "EvidenceSettings":
        """Return the settings that `values` give, defaults for the others; "0.5" is taken as 0.5.

        Raises ValueError naming every setting (with `prefix` before it) that is unknown or out of its range,
        and every entry of a list or mapping that cannot be used.
        """
        problems: list[str] = []
        converted: dict[str, Any] = {}
        for name, value in values.items():
            if name in _PARSERS:
                converted[name], wrong = _PARSERS[name](value, f"{prefix}{name}")
                problems += wrong
            elif name in _NAMES:
                try:
                    converted[name] = _convert(name, value)
                except ValueError:
                    problems.append(f"{prefix}{name} is {value!r}; expected {_expected(name)}")
            else:
                hint = close_name(name, _NAMES, prefix)
                problems.append(f"{prefix}{name} is no setting of the verdict; {hint}")
        if problems:
            raise ValueError("; ".join(problems))
        return cls(**converted)

    def as_dict(self) -> dict[str, Any]:
        """Return name -> value of every setting, as people write it."""
        return {name: getattr(self, name) for name in _NAMES} | {
            "goals": {metric: goal.range.as_json() for metric, goal in self.goals.items()},
            "log_patterns": [pattern.as_json() for pattern in self.log_patterns],
        }

    def goals_of(self, model: str) -> ModelGoals | None:
        """Return what this model must reach, with what people ask for; None where nobody knows."""
        accurate = Goal("accuracy", Range(minimum=self.target_accuracy))
        exact = Range(maximum=self.error_tolerance)
        weight = Goal.around("weight", 2.0, self.weight_tolerance)
        bias = Goal.around("bias", 10.0, self.bias_tolerance)
        known = {
            # The noise on y has a standard deviation of 0.33, so no line has a lower loss than 0.11.
            "linear": ModelGoals(0.2, (weight, bias)),
            # A model of this accuracy has a loss of about 0.35, and somewhat more where it is sure of none.
            "mnist_mlp": ModelGoals(0.5, (accurate,)),
            "cnn": ModelGoals(0.5, (accurate,)),
            # Without noise the loss goes to 0, and the matrix's numbers and the offset to the known ones.
            "placement_demo": ModelGoals(0.01, (Goal("largest_error", exact),)),
            # The noise on y has a standard deviation of 0.01. A weight that nobody told is off by 1 or more.
            "partition": ModelGoals(0.01, (Goal("largest_error", exact, of_each="error_of_"),)),
        }
        if model not in known and not self.goals:
            return None
        of_model = known.get(model, ModelGoals(0.0, ()))
        own = [goal for goal in of_model.goals if goal.metric not in self.goals]
        return ModelGoals(of_model.loss, (*own, *self.goals.values()))

    def target_loss_of(self, model: str) -> float | None:
        """Return the loss that a run must reach: what people ask for, else the model's own; None for none."""
        if self.target_loss is not None:
            return self.target_loss
        goals = self.goals_of(model)
        return goals.loss or None if goals else None


_NAMES = tuple(setting.name for setting in fields(EvidenceSettings))
_PARSERS: Mapping[str, Any] = {"goals": parse_goals, "log_patterns": parse_log_patterns}
_PARTS = {"minimum_share", "minimum_overlap", "minimum_loss_reduction", "loss_patience", "target_accuracy"}


def _convert(name: str, value: object) -> float | None:
    number = optional_number(value) if name == "target_loss" else to_number(value)
    if number is not None and number not in Range(0.0, 1.0 if name in _PARTS else None):
        raise ValueError(value)
    return number


def _expected(name: str) -> str:
    numbers = "a number from 0 to 1" if name in _PARTS else "a number >= 0"
    return f"{numbers}, or null for the model's own" if name == "target_loss" else numbers

"""What the verdict asks of a run. Each is a variable `training_evidence_X` of the role training_evidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from psfleet.evidence.goals import GOALS, Goal, Range
from psfleet.evidence.log_patterns import LOG_PATTERNS, LogPattern
from trainer.contract.settings import SettingsError, close_names, convert_all, number, or_null, setting

_AMOUNT, _PART = number(0), number(0, 1)


# How low a model's loss need fall.
_TARGET_LOSSES = {
    "linear": 0.2,  # the noise on y has a standard deviation of 0.33, so no line has a lower loss than 0.11
    # A model of the target accuracy has a loss of about 0.35, and somewhat more where it is sure of none.
    "mnist_mlp": 0.5,
    "cnn": 0.5,
    "placement_demo": 0.01,  # without noise it goes to 0
    "partition": 0.01,  # the noise on y has a standard deviation of 0.01
}


@dataclass(frozen=True)
class EvidenceSettings:
    """What a run must reach to be proven; the role's README says what each asks for."""

    minimum_share: float = setting(0.2, _PART)
    minimum_overlap: float = setting(0.5, _PART)
    minimum_loss_reduction: float = setting(0.2, _PART)
    target_loss: float | None = setting(None, or_null(_AMOUNT))
    loss_patience: float = setting(0.1, _PART)
    target_accuracy: float = setting(0.9, _PART)
    weight_tolerance: float = setting(0.2, _AMOUNT)
    bias_tolerance: float = setting(0.2, _AMOUNT)
    error_tolerance: float = setting(0.05, _AMOUNT)
    # Some thousand bytes prove nothing: the launcher's probes of the other tasks' ports, of some 330 bytes
    # each, must not pass for an exchange.
    minimum_exchanged_bytes: float = setting(65536, _AMOUNT)
    goals: Mapping[str, Goal] = field(default_factory=dict, metadata={"rule": GOALS})
    log_patterns: tuple[LogPattern, ...] = setting((), LOG_PATTERNS)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], prefix: str = "") -> "EvidenceSettings":
        """Return the settings that `values` give, defaults for the others; "0.5" is taken as 0.5.

        Raises SettingsError naming every setting (with `prefix` before it) that is unknown or out of its
        range, and every entry of a list or mapping that cannot be used.
        """
        rules = {one.name: one.metadata["rule"] for one in fields(cls)}
        unknown = close_names("a setting of the verdict", rules, prefix)
        converted, problems = convert_all(values, rules, unknown, prefix)
        if problems:
            raise SettingsError(problems)
        return cls(**converted)

    def as_dict(self) -> dict[str, Any]:
        """Return name -> value of every setting, as people write it."""
        return vars(self) | {
            "goals": {metric: goal.range.as_json() for metric, goal in self.goals.items()},
            "log_patterns": [pattern.as_json() for pattern in self.log_patterns],
        }

    def goals_of(self, model: str) -> tuple[Goal, ...]:
        """Return what this model must reach, with what people ask for; empty where nobody knows."""
        accurate = Goal("accuracy", Range(minimum=self.target_accuracy))
        exact = Range(maximum=self.error_tolerance)
        known: dict[str, tuple[Goal, ...]] = {
            "linear": (
                Goal.around("weight", 2.0, self.weight_tolerance),
                Goal.around("bias", 10.0, self.bias_tolerance),
            ),
            "mnist_mlp": (accurate,),
            "cnn": (accurate,),
            # The matrix's numbers and the offset go to the known ones.
            "placement_demo": (Goal("largest_error", exact),),
            # A weight that nobody told is off by 1 or more.
            "partition": (Goal("largest_error", exact, of_each="error_of_"),),
        }
        own = [goal for goal in known.get(model, ()) if goal.metric not in self.goals]
        return (*own, *self.goals.values())

    def target_loss_of(self, model: str) -> float | None:
        """Return the loss that a run must reach: what people ask for, else the model's own; None for none."""
        return _TARGET_LOSSES.get(model) if self.target_loss is None else self.target_loss

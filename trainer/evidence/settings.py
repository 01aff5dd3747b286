"""The thresholds of the verdict. The role training_evidence has a variable `training_evidence_X` for each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches


@dataclass(frozen=True)
class EvidenceSettings:
    """What a run must reach to be proven.

    Attributes:
        minimum_share: steps of the slowest worker, as a part of an equal share (1 / number of workers).
        minimum_overlap: part of the run's global steps during which every worker was training.
        minimum_loss_reduction: by which part the loss must fall from the run's first tenth to its last.
        target_loss: a loss that needs to fall no further; None is the model's own.
        target_accuracy: of `mnist_mlp` on the test images.
        weight_tolerance: of `linear`, around the true weight.
        bias_tolerance: of `linear`, around the true bias.

    """

    minimum_share: float = 0.2
    minimum_overlap: float = 0.5
    minimum_loss_reduction: float = 0.2
    target_loss: float | None = None
    target_accuracy: float = 0.9
    weight_tolerance: float = 0.2
    bias_tolerance: float = 0.2

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], prefix: str = "") -> EvidenceSettings:
        """Return the settings that `values` give, defaults for the others; "0.5" is taken as 0.5.

        Raises ValueError naming every setting (with `prefix` before it) that is unknown or out of its range.
        """
        problems, converted = [], {}
        for name, value in values.items():
            if name not in _RANGES:
                close = get_close_matches(name, _RANGES, n=1)
                hint = f"did you mean {prefix}{close[0]}?" if close else f"there are {', '.join(_RANGES)}"
                problems.append(f"{prefix}{name} is no setting of the verdict; {hint}")
                continue
            try:
                converted[name] = _convert(name, value)
            except ValueError:
                problems.append(f"{prefix}{name} is {value!r}; expected {_expected(name)}")
        if problems:
            raise ValueError("; ".join(problems))
        return cls(**converted)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, float | None]:
        """Return name -> value of every setting."""
        return asdict(self)


_RANGES = {
    "minimum_share": (0.0, 1.0),
    "minimum_overlap": (0.0, 1.0),
    "minimum_loss_reduction": (0.0, 1.0),
    "target_loss": (0.0, math.inf),
    "target_accuracy": (0.0, 1.0),
    "weight_tolerance": (0.0, math.inf),
    "bias_tolerance": (0.0, math.inf),
}
_MAY_BE_NULL = {setting.name for setting in fields(EvidenceSettings) if setting.default is None}


def _convert(name: str, value: object) -> float | None:
    if name in _MAY_BE_NULL and value in (None, ""):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(value)
    number = float(value)
    lowest, highest = _RANGES[name]
    if not math.isfinite(number) or not lowest <= number <= highest:
        raise ValueError(value)
    return number


def _expected(name: str) -> str:
    lowest, highest = _RANGES[name]
    numbers = (
        f"a number from {lowest:g} to {highest:g}" if math.isfinite(highest) else f"a number >= {lowest:g}"
    )
    return numbers + (", or null for the model's own" if name in _MAY_BE_NULL else "")

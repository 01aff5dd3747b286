"""The text format in which Prometheus reads metrics (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


@dataclass
class Family:
    """A metric of a `kind` ("gauge" or "counter"): what it means, and its samples, each with labels."""

    name: str
    kind: str
    text: str
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, labels: Mapping[str, str], value: float) -> Family:
        """Take one more sample, and return the family."""
        self.samples.append((dict(labels), value))
        return self


def render(families: Iterable[Family]) -> str:
    """Return the lines of the families that have samples."""
    return "".join(_render(family) for family in families if family.samples)


def _render(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in family.samples:
        shown = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
        lines.append(f"{family.name}{{{shown}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)

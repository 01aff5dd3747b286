"""Numbers as people write them into an inventory or on the command line."""

from __future__ import annotations

import math

_ABSENT = (None, "")


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
    return None if value in _ABSENT else to_number(value)

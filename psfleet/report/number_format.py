"""Formats numbers and names for the report."""

import math
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")


def shorten(text: str, most: int = 300) -> str:
    """Return the text in one line of at most `most` characters; a longer one ends with "…".

    Line breaks and other white space become one blank.
    """
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def number(value: object) -> str:
    """Return a number as text, such as "12,345" or "0.0123"; "-" if `value` is not a number.

    True and False are no numbers. nan and infinity are "not finite".
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else f"{str(value)[:6]}…"
    if not math.isfinite(value):
        return "not finite"
    if value == 0 or 0.001 <= abs(value) < 1e15:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:.2e}"


def seconds(value: float) -> str:
    """Return a time as text, such as "0.4 s", "1 min 45 s" or "2 h 5 min"; "-" if it is not finite.

    Below 100 s it is in seconds, below 100 min in minutes.
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def name_range(names: Sequence[str], most: int = 3) -> str:
    """Return the names joined by ", "; of more than `most`, the first, the last and the number of names.

    Example: name_range(["worker0", "worker1", "worker2", "worker3"]) -> "worker0 … worker3 (4)".
    """
    if len(names) <= most:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)})"


def thin_out(rows: Sequence[Row], most: int) -> Sequence[Row]:
    """Return at most `most` of the rows, evenly spaced, the first included; all if there are no more."""
    return rows[:: math.ceil(len(rows) / most)] if len(rows) > most else rows


def first_and_last_rows(rows: Sequence[Row], most: int) -> tuple[Sequence[Row], int]:
    """Return (at most `most` rows, number of rows left out): half from the beginning, half from the end.

    All rows are returned if there are no more than `most`.
    """
    if len(rows) <= most:
        return rows, 0
    half = most // 2
    return [*rows[:half], *rows[-half:]], len(rows) - 2 * half

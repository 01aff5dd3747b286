"""Formatting of texts for people: groups, counts, sizes, versions, and shortened texts and lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return {key: list of all values that are paired with the key}, both in the order of `pairs`.

    Example: grouped([("a", 1), ("b", 2), ("a", 3)]) -> {"a": [1, 3], "b": [2]}
    """
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 time" or "2 times"; the plural of "ps" is "ps"."""
    return f"{count} {noun}{'' if count == 1 or noun == 'ps' else 's'}"


def readable(size: int) -> str:
    """Return a number of bytes with a decimal unit: "12 bytes", "1.5 kB", "1.5 MB" or "1.5 GB"."""
    for factor, unit in UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def dotted(version: Iterable[int]) -> str:
    """Return a version as text, such as "2.36" for (2, 36)."""
    return ".".join(map(str, version))


def cut(text: str, most: int) -> str:
    """Return `text`, or if it has more than `most` characters, its beginning and "...".

    The result has at most `most` characters, with the dots.
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_of(names: Sequence[str], shown: int = 10, separator: str = ", ") -> str:
    """Return the first `shown` names in one text, with " and N more" if there are more; "" for no names.

    Example: first_of(["a", "b", "c"], shown=2) -> "a, b and 1 more"
    """
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return separator.join(names[:shown]) + more

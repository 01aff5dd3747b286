"""Formatting of texts for people: groups, counts, sizes, versions, and shortened texts and lists."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return {key: all values that are paired with the key}; keys and values stay in their order."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as "1 time" or "2 times"; the plural of "ps" is "ps"."""
    return f"{count} {noun}{'' if count == 1 or noun == 'ps' else 's'}"


def readable(size: int) -> str:
    """Return a number of bytes with a unit, such as "1.5 GB"."""
    for factor, unit in UNITS:
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


def dotted(version: Iterable[int]) -> str:
    """Return a version as text, such as "2.36" for (2, 36)."""
    return ".".join(map(str, version))


def cut(text: str, most: int) -> str:
    """Return `text`, or its beginning with "..." at the end if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_of(names: Sequence[str], shown: int = 10, separator: str = ", ") -> str:
    """Return the first `shown` names in one text, with " and N more" if there are more."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return separator.join(names[:shown]) + more

"""Words for people: what belongs together, counts, and lists that are cut short."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values that have the same key in one list, keys and values in the order they came."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def counted(count: int, noun: str) -> str:
    """Return "1 time", "2 times"; ps has no plural of its own."""
    return f"{count} {noun}{'' if count == 1 or noun == 'ps' else 's'}"


def dotted(version: Iterable[int]) -> str:
    """Return "2.36" of (2, 36)."""
    return ".".join(map(str, version))


def cut(text: str, most: int) -> str:
    """Return as much of a text as `most` characters hold, with dots where something is left out."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_of(names: Sequence[str], shown: int = 10, separator: str = ", ") -> str:
    """Return the first of these, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return separator.join(names[:shown]) + more

"""The rules of values that programs write as JSON; they convert nothing.

A list or a mapping stops at its first wrong part, because whoever wrote it chose its length.
"""

import re
import sys
from collections.abc import Mapping

from .rules import Rule, SettingsError, as_given, convert_fields, problems_of, to_text

# The largest whole number of 63 bits: later computations with such numbers overflow no float.
MOST_WHOLE = 2**63 - 1
_LARGEST = sys.float_info.max


def whole(minimum: int = -MOST_WHOLE, maximum: int = MOST_WHOLE) -> Rule:
    """Return the rule for integers from `minimum` to `maximum`; the rule refuses True and 1.0."""

    def convert(value: object) -> int:
        if isinstance(value, int) and minimum <= value <= maximum and not isinstance(value, bool):
            return value
        raise ValueError(value)

    return Rule(f"a whole number{_span(minimum, maximum)}", convert)


def real(minimum: float = -_LARGEST, maximum: float = _LARGEST) -> Rule:
    """Return the rule for finite numbers, int or float, from `minimum` to `maximum`; it refuses True."""

    def convert(value: object) -> float:
        if isinstance(value, float | int) and minimum <= value <= maximum and not isinstance(value, bool):
            return value
        raise ValueError(value)

    return Rule(f"a number{_span(minimum, maximum)}", convert)


def text(most: int) -> Rule:
    """Return the rule for texts of at most `most` characters; the empty text is accepted."""

    def convert(value: object) -> str:
        if isinstance(value, str) and len(value) <= most:
            return value
        raise ValueError(value)

    return Rule(f"a text of at most {most} characters", convert)


def matching(expected: str, pattern: re.Pattern[str], *, or_empty: bool = False) -> Rule:
    """Return the rule for texts that match `pattern` from their first to their last character.

    `expected` says in words what such a text is. With `or_empty`, the rule accepts the empty text, too.
    """

    def convert(value: object) -> str:
        if isinstance(value, str) and (pattern.fullmatch(value) or (or_empty and not value)):
            return value
        raise ValueError(value)

    return Rule(f"{expected} or an empty text" if or_empty else expected, convert)


def one_of(*names: str) -> Rule:
    """Return the rule for a text that is one of `names`."""

    def convert(value: object) -> object:
        if value in names:
            return value
        raise ValueError(value)

    return Rule(f"one of {', '.join(names)}", convert, names)


def nullable(rule: Rule) -> Rule:
    """Return a rule that accepts what `rule` accepts, and null (None), which stays None."""
    return Rule(f"{rule.expected} or null", lambda value: None if value is None else rule.convert(value))


def list_of(rule: Rule, most: int = sys.maxsize) -> Rule:
    """Return the rule for lists (or tuples) of at most `most` entries, each of which `rule` accepts.

    The rule converts them to lists. The empty list is accepted. Only the first wrong entry is a problem.
    """

    def convert(value: object) -> list[object]:
        if not isinstance(value, list | tuple) or len(value) > most:
            raise ValueError(value)
        parts: list[object] = []
        part: object = None
        try:
            for part in value:
                parts.append(rule.convert(part))
        except ValueError as error:
            raise SettingsError(problems_of(f"[{len(parts)}]", part, rule, error)) from error
        return parts

    return Rule(f"a list of {_limit(most)}entries, each {rule.expected}", convert)


def tuple_of(rule: Rule) -> Rule:
    """Return a rule that converts a list (or tuple) to a tuple; `rule` must accept each entry."""
    listed = list_of(rule)
    return Rule(listed.expected, lambda value: tuple(listed.convert(value)))  # type: ignore[arg-type]


def mapping_of(rule: Rule, most: int = sys.maxsize) -> Rule:
    """Return the rule for JSON objects with any names, at most `most`, each with a value that `rule` accepts.

    The empty object is accepted. Only the first wrong value is a problem.
    """

    def convert(value: object) -> dict[str, object]:
        if not isinstance(value, Mapping) or len(value) > most:
            raise ValueError(value)
        parts: dict[str, object] = {}
        name, part = "", None
        try:
            for name, part in value.items():
                parts[to_text(name)] = rule.convert(part)
        except ValueError as error:  # as_given, because the name comes from the writer, too
            raise SettingsError(problems_of(f"[{as_given(name)}]", part, rule, error)) from error
        return parts

    return Rule(f"an object of {_limit(most)}values, each {rule.expected}", convert)


def object_of(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule for JSON objects with the fields of `rules`, {field: rule}.

    A missing field is a problem unless its rule is optional. The converted object has no other fields.
    """

    def convert(value: object) -> dict[str, object]:
        if not isinstance(value, Mapping):
            raise ValueError(value)
        accepted, problems = convert_fields(value, rules, ".")
        if problems:
            raise SettingsError(problems)
        return accepted

    return Rule("an object", convert)


def _to_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(value)


def _to_object(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(value)


def _span(minimum: float, maximum: float) -> str:
    """Return the bounds of a number in words, with a blank before: " from 1 to 9", or " >= 1".

    A bound of MOST_WHOLE or beyond counts as none. Return "" without a maximum and a minimum.
    """
    if maximum < MOST_WHOLE:
        return f" from {minimum} to {maximum}"
    return f" >= {minimum}" if minimum > -MOST_WHOLE else ""


def _limit(most: int) -> str:
    return f"at most {most} " if most < sys.maxsize else ""


TEXT, SWITCH, OBJECT = (
    Rule("a text", to_text),
    Rule("true or false", _to_boolean),
    Rule("an object", _to_object),
)
WHOLE, COUNT, NUMBER = whole(), whole(0), real()

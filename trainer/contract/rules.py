"""The rules of values: what a value must be, and what an error says if it is not.

The rules of this file are for values that people write: they convert "7" to 7. The rules in `json_values` are
for values that programs write.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from difflib import get_close_matches
from typing import Any

_NULLS = ("", "null", "none", "~")
LONGEST_VALUE = 300
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


@dataclass(frozen=True)
class SettingProblem:
    """A value that cannot be used: its name, the value (MISSING: there is none), and what is expected."""

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        """Return the problem in one line."""
        if self.value is MISSING:
            return f"{self.name} is missing"
        return f"{self.name} is {as_given(self.value)}; expected {self.expected}"


def as_given(value: object) -> str:
    """Return a value as Python writes it (`repr`), cut to 300 characters; "too long to show" if it cannot."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # Python writes no integer of thousands of digits
        return "too long to show"
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[: LONGEST_VALUE - 3]}..."


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` has every problem."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Rule:
    """What a value must be.

    Attributes:
        expected: what is expected, in words.
        convert: returns the converted value, or raises ValueError. If only parts of the value are wrong, it
            raises SettingsError, in which names are what follows the setting's name, such as "[1].port".
        choices: the allowed values, if they are a list without null; else empty.
        optional: whether the field of an object may be missing.

    """

    expected: str
    convert: Callable[[object], object]
    choices: tuple[str, ...] = ()
    optional: bool = False


def convert_all(
    values: Mapping[str, object], rules: Mapping[str, Rule], unknown: Callable[[str], str], prefix: str = ""
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return ({name: converted value} of the values that their rules accept, a problem for each other value).

    Args:
        values: {name: value}.
        rules: {name: rule}.
        unknown: returns what is expected instead of a name that has no rule.
        prefix: stands before the names in the problems.

    """
    found = {name: rules.get(name) or Rule(unknown(name), _refuse) for name in values}
    return convert_fields(values, found, prefix)


def convert_fields(
    content: Mapping[str, object], rules: Mapping[str, Rule], prefix: str = ""
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return the converted fields of an object, and a problem for each field that is missing or refused.

    Fields without a rule are left out. `prefix` stands before each name in a problem.
    """
    accepted: dict[str, Any] = {}
    problems: list[SettingProblem] = []
    for name, rule in rules.items():
        if name in content:
            try:
                accepted[name] = rule.convert(content[name])
            except ValueError as error:
                problems += problems_of(f"{prefix}{name}", content[name], rule, error)
        elif not rule.optional:
            problems.append(SettingProblem(f"{prefix}{name}", MISSING, rule.expected))
    return accepted, problems


def problems_of(name: str, value: object, rule: Rule, error: ValueError) -> list[SettingProblem]:
    """Return why a rule refused a value: a problem for each wrong part, or one for the whole value."""
    if isinstance(error, SettingsError):
        return [replace(part, name=f"{name}{part.name}") for part in error.problems]
    return [SettingProblem(name, value, rule.expected)]


def converted(
    values: Mapping[str, object],
    rules: Mapping[str, Rule],
    unknown: Callable[[str], str] = str,
    prefix: str = "",
) -> dict[str, Any]:
    """Return {name: converted value}; the arguments are as for `convert_all`.

    Raises SettingsError with every problem if any value has one.
    """
    accepted, problems = convert_all(values, rules, unknown, prefix)
    if problems:
        raise SettingsError(problems)
    return accepted


def close_names(what: str, names: Collection[str], prefix: str = "") -> Callable[[str], str]:
    """Return a function that returns the hint for an unknown name: what is expected, and known names.

    The hint begins with `what`, then has the closest of `names`, or all names if none is close.
    """

    def expected(name: str) -> str:
        close = get_close_matches(str(name), names, n=1)
        return f"{what} (did you mean {prefix}{close[0]}?)" if close else f"{what}: {', '.join(names)}"

    return expected


def _refuse(value: object) -> object:
    raise ValueError(value)


def to_integer(value: object) -> int:
    """Return 7 for 7 and for "7"; raise ValueError for anything else, such as True, 1.5 or "many".

    For an integer of 2**63 or more, the ValueError is a SettingsError that says so.
    """
    original = value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(original)
    if value.bit_length() > 63:  # TensorFlow counts in 64 bits
        raise SettingsError([SettingProblem("", original, "an integer below 2**63")])
    return int(value)


def to_number(value: object) -> float:
    """Return 0.5 for 0.5 and for "0.5"; raise ValueError for anything that is no finite number."""
    number = float(str(value))  # "True" and "[1]" are no numbers, and an integer beyond all floats is inf
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def to_text(value: object) -> str:
    """Return `value` if it is a text; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _to_boolean(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(value)
    return word in _TRUE


def checked(expected: str, convert: Callable[[object], Any], fits: Callable[[Any], object]) -> Rule:
    """Return a rule that accepts a value if `fits` is true for what `convert` returns for the value.

    `expected` is the rule's text.
    """

    def fitting(value: object) -> object:
        converted = convert(value)
        if not fits(converted):
            raise ValueError(value)
        return converted

    return Rule(expected, fitting)


def integer(minimum: int, maximum: int | None = None) -> Rule:
    """Return the rule for integers from `minimum` to `maximum` (None: no limit).

    It accepts "7", but not True or 1.5.
    """
    span = f"from {minimum} to {maximum}" if maximum else f">= {minimum}"
    return checked(f"an integer {span}", to_integer, lambda whole: minimum <= whole <= (maximum or whole))


def number(minimum: float, maximum: float = math.inf, *, exclusive: bool = False) -> Rule:
    """Return the rule for finite numbers from `minimum` to `maximum`. It accepts "0.5".

    With `exclusive`, the number must be above `minimum`.
    """
    most = f" and <= {maximum:g}" if maximum < math.inf else ""
    span = f"{'>' if exclusive else '>='} {minimum:g}{most}"
    if most and not exclusive:
        span = f"from {minimum:g} to {maximum:g}"
    return checked(
        f"a number {span}",
        to_number,
        lambda real: minimum <= real <= maximum and not (exclusive and real == minimum),
    )


# "yes" and "off" are accepted, too, because Ansible reads them as booleans.
BOOLEAN = Rule("true or false", _to_boolean)


def choice(*names: str) -> Rule:
    """Return the rule for a text that must be one of `names`."""
    rule = checked(f"one of {', '.join(names)}", lambda value: to_text(value).strip(), names.__contains__)
    return replace(rule, choices=names)


def optional(rule: Rule) -> Rule:
    """Return the rule of a field that an object may lack."""
    return replace(rule, optional=True)


def or_null(rule: Rule, meaning: str = "the model's own") -> Rule:
    """Return a rule that accepts what `rule` accepts, and null, which stands for `meaning`."""

    def convert(value: object) -> object:
        absent = value is None or (isinstance(value, str) and value.strip().lower() in _NULLS)
        return None if absent else rule.convert(value)

    return Rule(f"{rule.expected}, or null for {meaning}", convert)


def setting(default: object, rule: Rule, meaning: str = "") -> Any:  # noqa: ANN401 - as dataclasses.field
    """Return a dataclass's field with its default (MISSING: it has none), and the rest in its metadata.

    `meaning` is Markdown, and its first sentence is a summary. It does not repeat what the rule expects.
    """
    return field(default=default, metadata={"rule": rule, "meaning": meaning})

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
    """A value that cannot be used.

    `name` is the setting's name, `value` the value (MISSING if there is none), `expected` says in words what
    the value must be.
    """

    name: str
    value: object
    expected: str

    def __str__(self) -> str:
        """Return the problem in one line: "steps is 0; expected an integer >= 1", or "steps is missing"."""
        if self.value is MISSING:
            return f"{self.name} is missing"
        return f"{self.name} is {as_given(self.value)}; expected {self.expected}"


def as_given(value: object) -> str:
    """Return a value as Python writes it (`repr`), cut to 300 characters with "..." at the end.

    If Python cannot write it, as an integer of thousands of digits, return "too long to show".
    """
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # Python writes no integer of thousands of digits
        return "too long to show"
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[: LONGEST_VALUE - 3]}..."


class SettingsError(ValueError):
    """One or more values cannot be used; `problems` is a SettingProblem for each."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Rule:
    """What a value must be. A rule *accepts* a value that `convert` converts, and *refuses* all others.

    Attributes:
        expected: what is expected, in words.
        convert: returns the converted value, or raises ValueError. If only parts of the value are wrong, it
            raises SettingsError, in which names are what follows the setting's name, such as "[1].port".
        choices: the allowed values, if they are a list without null; else ().
        optional: True if an object may lack a field with this rule; False if it must have the field.

    """

    expected: str
    convert: Callable[[object], object]
    choices: tuple[str, ...] = ()
    optional: bool = False


def convert_all(
    values: Mapping[str, object], rules: Mapping[str, Rule], unknown: Callable[[str], str], prefix: str = ""
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return ({name: converted value} of the accepted values, a problem for each other value).

    A name without a rule is a problem; a rule without a value is none.

    Args:
        values: {name: value}.
        rules: {name: rule}.
        unknown: returns, for a name without a rule, what is expected in its place.
        prefix: stands before the names in the problems.

    """
    found = {name: rules.get(name) or Rule(unknown(name), _refuse) for name in values}
    return convert_fields(values, found, prefix)


def convert_fields(
    content: Mapping[str, object], rules: Mapping[str, Rule], prefix: str = ""
) -> tuple[dict[str, Any], list[SettingProblem]]:
    """Return ({field: converted value}, problems) of the fields in `content` that have a rule.

    A refused field is a problem, and so is a missing field whose rule is not optional; both are left out of
    the fields. Fields without a rule are ignored. `prefix` stands before each name in a problem.
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
    """Return the problems for the value of `name`, which `rule` refused with the exception `error`.

    If `error` is a SettingsError, the result is a problem for each wrong part, such as "layers[1]"; else one
    problem for the whole value.
    """
    if isinstance(error, SettingsError):
        return [replace(part, name=f"{name}{part.name}") for part in error.problems]
    return [SettingProblem(name, value, rule.expected)]


def converted(
    values: Mapping[str, object],
    rules: Mapping[str, Rule],
    unknown: Callable[[str], str] = str,
    prefix: str = "",
) -> dict[str, Any]:
    """Return {name: converted value} of all values; the arguments are those of `convert_all`.

    Raises SettingsError with every problem if a value is refused or a name has no rule.
    """
    accepted, problems = convert_all(values, rules, unknown, prefix)
    if problems:
        raise SettingsError(problems)
    return accepted


def close_names(what: str, names: Collection[str], prefix: str = "") -> Callable[[str], str]:
    """Return a function that takes an unknown name and returns the hint for it.

    Examples, for what="an optimizer" and names=["sgd", "adam"]: hint("adan") -> "an optimizer (did you mean
    adam?)"; hint("x") -> "an optimizer: sgd, adam". `prefix` stands before the name after "did you mean".
    """

    def expected(name: str) -> str:
        close = get_close_matches(str(name), names, n=1)
        return f"{what} (did you mean {prefix}{close[0]}?)" if close else f"{what}: {', '.join(names)}"

    return expected


def _refuse(value: object) -> object:
    raise ValueError(value)


def to_integer(value: object) -> int:
    """Return 7 for 7, "7" and " 7 "; raise ValueError for anything else, such as True, 1.5 or "many".

    For an integer of 64 bits or more, the ValueError is a SettingsError that says what is expected.
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
    """Return a finite number as float: 0.5 for 0.5 and "0.5", 1.0 for 1.

    Raises ValueError for anything else, such as True, nan or "many".
    """
    number = float(str(value))  # "True" and "[1]" are no numbers, and an integer beyond all floats is inf
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def to_text(value: object) -> str:
    """Return `value` unchanged if it is a str, even an empty one; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _to_boolean(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(value)
    return word in _TRUE


def checked(expected: str, convert: Callable[[object], Any], fits: Callable[[Any], object]) -> Rule:
    """Return a rule that converts a value with `convert`, and accepts it if `fits(converted value)` is true.

    A value that `convert` refuses (ValueError) is refused. `expected` says in words what the value must be.
    """

    def fitting(value: object) -> object:
        converted = convert(value)
        if not fits(converted):
            raise ValueError(value)
        return converted

    return Rule(expected, fitting)


def integer(minimum: int, maximum: int | None = None) -> Rule:
    """Return the rule for integers from `minimum` to `maximum` (None: no limit), both included.

    It accepts the text "7" as 7; it refuses True and 1.5.
    """
    span = f"from {minimum} to {maximum}" if maximum else f">= {minimum}"
    return checked(f"an integer {span}", to_integer, lambda whole: minimum <= whole <= (maximum or whole))


def number(minimum: float, maximum: float = math.inf, *, exclusive: bool = False) -> Rule:
    """Return the rule for finite numbers from `minimum` to `maximum`, both included.

    It converts "0.5" and 1 to float. With `exclusive`, `minimum` itself is refused.
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
    """Return the rule for a text that must be one of `names`; blanks around the text are removed."""
    rule = checked(f"one of {', '.join(names)}", lambda value: to_text(value).strip(), names.__contains__)
    return replace(rule, choices=names)


def optional(rule: Rule) -> Rule:
    """Return a copy of `rule` for a field that an object may lack."""
    return replace(rule, optional=True)


def or_null(rule: Rule, meaning: str = "the model's own") -> Rule:
    """Return a rule that accepts what `rule` accepts, and null, which is converted to None.

    None, "", "null", "none" and "~" are null. `meaning` says in words what null stands for.
    """

    def convert(value: object) -> object:
        absent = value is None or (isinstance(value, str) and value.strip().lower() in _NULLS)
        return None if absent else rule.convert(value)

    return Rule(f"{rule.expected}, or null for {meaning}", convert)


def setting(default: object, rule: Rule, meaning: str = "") -> Any:  # noqa: ANN401 - as dataclasses.field
    """Return the dataclass field for a setting with this default (MISSING: the setting must be given).

    Its metadata are {"rule": `rule`, "meaning": `meaning`}. `meaning` is Markdown, whose first sentence is a
    summary; it does not repeat what the rule expects.
    """
    return field(default=default, metadata={"rule": rule, "meaning": meaning})

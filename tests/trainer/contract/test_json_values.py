import math
import re
from typing import Any

import pytest

from trainer.contract.json_values import (
    COUNT,
    MOST_WHOLE,
    NUMBER,
    OBJECT,
    SWITCH,
    TEXT,
    WHOLE,
    list_of,
    mapping_of,
    matching,
    nullable,
    object_of,
    one_of,
    real,
    text,
    tuple_of,
    whole,
)
from trainer.contract.rules import Rule, SettingsError, convert_fields, optional

POINT = object_of({"x": WHOLE, "y": NUMBER, "name": optional(text(3))})
HASH = re.compile("[0-9a-f]{4}")


@pytest.mark.parametrize(
    ("rule", "accepted"),
    [
        (TEXT, ["", "x"]),
        (SWITCH, [True, False]),
        (OBJECT, [{}, {"a": [1]}]),
        (WHOLE, [0, -MOST_WHOLE, MOST_WHOLE]),
        (COUNT, [0]),
        (whole(2, 3), [2, 3]),
        (NUMBER, [0, -1.5, 1e300]),
        (real(0, 1), [0, 1, 0.5]),
        (text(2), ["", "ab"]),
        (matching("a hash", HASH), ["00ff"]),
        (matching("a hash", HASH, or_empty=True), ["00ff", ""]),
        (one_of("a", "b"), ["a", "b"]),
        (nullable(WHOLE), [None, 3]),
        (list_of(WHOLE, 2), [[], [1, 2]]),
        (mapping_of(WHOLE, 1), [{}, {"a": 1}]),
        (POINT, [{"x": 1, "y": 0.5}, {"x": 1, "y": 2, "name": "abc"}]),
    ],
)
def test_an_accepted_value_is_returned_unchanged(rule: Rule, accepted: list[Any]) -> None:
    for value in accepted:
        taken = rule.convert(value)
        assert (taken, type(taken)) == (value, type(value))


@pytest.mark.parametrize(
    ("rule", "refused", "expected"),
    [
        (TEXT, [None, 1, ["x"]], "a text"),
        (SWITCH, [0, 1, "true", None], "true or false"),
        (OBJECT, [None, [], "x"], "an object"),
        (WHOLE, [True, 1.0, "1", None, 2**63, -(2**63), 10**400], "a whole number"),
        (COUNT, [-1, False], "a whole number >= 0"),
        (whole(2, 3), [1, 4], "a whole number from 2 to 3"),
        (NUMBER, [True, "1", None, math.nan, math.inf, -math.inf, 10**400], "a number"),
        (real(0, 1), [-0.1, 1.1], "a number from 0 to 1"),
        (text(2), ["abc", 12], "a text of at most 2 characters"),
        (matching("a hash", HASH), ["", "00ff\n", "00fff", 1000], "a hash"),
        (matching("a hash", HASH, or_empty=True), ["00", None], "a hash or an empty text"),
        (one_of("a", "b"), [" a", "A", "", ["a"], None], "one of a, b"),
        (nullable(WHOLE), ["", "null", 0.5], "a whole number or null"),
        (list_of(WHOLE, 2), [[1, 2, 3], {}, "12", None], "a list of at most 2 entries, each a whole number"),
        (
            mapping_of(WHOLE, 1),
            [{"a": 1, "b": 2}, [], None],
            "an object of at most 1 values, each a whole number",
        ),
        (POINT, [[1, 2], None], "an object"),
    ],
)
def test_another_value_is_refused_with_what_is_expected(
    rule: Rule, refused: list[Any], expected: str
) -> None:
    for value in refused:
        taken, (problem,) = convert_fields({"it": value}, {"it": rule})
        assert (taken, problem.name, problem.value, problem.expected) == ({}, "it", value, expected)


@pytest.mark.parametrize(
    ("rule", "value", "problems"),
    [
        (list_of(WHOLE), [1, "2", None], ["it[1] is '2'; expected a whole number"]),
        (tuple_of(list_of(WHOLE)), [[], [1, 0.5]], ["it[1][1] is 0.5; expected a whole number"]),
        (mapping_of(WHOLE), {"a": 1, "b\x1b": "2"}, ["it['b\\x1b'] is '2'; expected a whole number"]),
        (mapping_of(WHOLE), {"b" * 400: None}, [f"it['{'b' * 296}...] is None; expected a whole number"]),
        (
            list_of(POINT),
            [{"x": 1, "y": 1}, {"y": "1", "name": "long"}],
            [
                "it[1].x is missing",
                "it[1].y is '1'; expected a number",
                "it[1].name is 'long'; expected a text of at most 3 characters",
            ],
        ),
        (nullable(mapping_of(POINT)), {"a": {"x": 1}}, ["it['a'].y is missing"]),
    ],
)
def test_a_problem_names_the_place_of_the_wrong_part(rule: Rule, value: object, problems: list[str]) -> None:
    with pytest.raises(SettingsError) as error:
        object_of({"it": rule}).convert({"it": value})
    assert [str(problem) for problem in error.value.problems] == [f".{problem}" for problem in problems]


def test_an_object_has_only_the_fields_that_have_rules() -> None:
    assert POINT.convert({"x": 1, "y": 2, "z": 3}) == {"x": 1, "y": 2}


def test_a_list_that_becomes_a_tuple_has_the_converted_entries() -> None:
    assert tuple_of(POINT).convert([{"x": 1, "y": 2, "z": 3}]) == ({"x": 1, "y": 2},)

"""The published schema of hosts' answers accepts and refuses the same answers as the controller."""

import json
from functools import cache
from typing import Any

import jsonschema
import pytest

from psfleet.run.host_answers import KINDS
from tests.psfleet.run.test_host_answers import ANSWERS, INVALID, OF_ALL
from tests.repository import ROOT
from tools import host_answers_schema

SCHEMA = json.loads((ROOT / "docs/schema/host-answers-1.schema.json").read_text(encoding="utf-8"))
# JSON has no such values.
NOT_JSON = ("is nan", "surrogates not allowed")


@cache
def _validator(step: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{step}"})


def is_taken(step: str, answer: dict[str, Any]) -> bool:
    return bool(_validator(step).is_valid(answer))


def test_the_file_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("step", ANSWERS)
def test_the_schema_accepts_an_answer_that_the_controller_accepts(step: str) -> None:
    assert is_taken(step, OF_ALL | ANSWERS[step])
    assert is_taken("failed step", OF_ALL | {"failed": True})


@pytest.mark.parametrize(
    ("step", "change"),
    [(step, change) for step, change, problem in INVALID if not any(text in problem for text in NOT_JSON)],
)
def test_the_schema_refuses_an_answer_that_the_controller_refuses(step: str, change: dict[str, Any]) -> None:
    name = "failed step" if change.get("failed") is True else step
    assert not is_taken(name, ANSWERS[step] | change)


@pytest.mark.parametrize("step", ANSWERS)
def test_an_answer_without_a_required_field_is_refused(step: str) -> None:
    required = SCHEMA["$defs"][step]["required"]
    assert {*required} <= ANSWERS[step].keys()
    for field in required:
        assert not is_taken(step, {name: value for name, value in ANSWERS[step].items() if name != field})


def test_each_kind_of_value_has_a_schema() -> None:
    assert {*host_answers_schema.KINDS, "objects"} == KINDS.keys()

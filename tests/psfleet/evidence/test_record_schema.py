"""The published schema of a record agrees with the code that reads it."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.repository import ROOT
from tools.record_schema import schema
from trainer.contract.records import EVENTS, OPTIONAL, required_fields, schema_problems

FILE = ROOT / "docs" / "schema" / "record-1.schema.json"
GOOD = {
    "str": "x",
    "int": 3,
    "seconds": 0.5,
    "number": None,
    "object": {"a": []},
    "ints": {"ps0": 5},
    "numbers": {"loss": None, "accuracy": 0.5},
    "counts": [1, 2],
}
STRANGE: list[Any] = [None, True, 5, 0.5, "x", [], [0.5], ["x"], {}, {"a": 0.5}, {"a": "x"}, {"a": True}]
COMMON = {
    "v": 1,
    "run_id": "r",
    "host": "h",
    "pid": 1,
    "plan_hash": "p",
    "release": "e",
    "wall": 1.5,
    "monotonic": 2,
}
WHO = [("ps", 0), ("worker", 0), ("worker", 1), ("chief", 0), ("evaluator", 0), ("server", 2)]


def test_the_file_is_a_valid_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def damaged(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the record, each field lost, and each with another value."""
    yield record
    for name in record:
        yield {field: value for field, value in record.items() if field != name}
        for value in STRANGE:
            yield {**record, name: copy.deepcopy(value)}


@pytest.mark.parametrize("program", [True, False])
@pytest.mark.parametrize("event", list(EVENTS))
def test_the_schema_accepts_exactly_the_records_that_the_code_accepts(event: str, program: bool) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8")))
    taken = refused = 0
    for job, index in WHO:
        kinds = {**OPTIONAL.get(event, {}), **required_fields(event, "worker", 0)}
        kinds |= required_fields(event, "evaluator", 0)
        fields = {name: GOOD[kind] for name, kind in kinds.items()}
        whole = {**COMMON, "event": event, "job": job, "index": index, **fields}
        whole |= {"program": "c0ffee"} if program else {}
        for record in damaged(whole):
            good = not schema_problems(record)
            assert validator.is_valid(record) is good, (record, schema_problems(record))
            taken, refused = taken + good, refused + (not good)
    assert taken > 50
    assert refused > 50


def test_every_record_of_a_real_run_is_valid(trained: Callable[[str], Path]) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    lines = [line for file in (trained("healthy") / "events").iterdir() for line in file.open()]
    assert len(lines) > 100
    for line in lines:
        validator.validate(json.loads(line))

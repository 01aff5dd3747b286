"""The event records as JSON Schema, made from the code that reads them.

https://json-schema.org/draft/2020-12. `make docs` writes it to docs/schema/, for tools that are not ours. In
our code an integer has no fraction; a reader that accepts 1.0 as an integer accepts more than our code.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trainer.contract import records

_NUMBER: Mapping[str, object] = {"type": ["number", "null"]}
_INTEGER: Mapping[str, object] = {"type": "integer"}
_KINDS: Mapping[str, Mapping[str, object]] = {
    "str": {"type": "string"},
    "int": _INTEGER,
    "seconds": {"type": "number"},
    "number": _NUMBER,
    "object": {"type": "object"},
    "ints": {"type": "object", "additionalProperties": _INTEGER},
    "numbers": {"type": "object", "additionalProperties": _NUMBER},
    "counts": {"type": "array", "items": _INTEGER},
}
_NO_PROGRAM = {"not": {"required": ["program"]}}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one event record, which is a line of events/*.jsonl."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A record of a task of psfleet, version {records.VERSION}",
        "description": "A line of events/*.jsonl of a run; docs/contracts.md has what each field means.",
        "type": "object",
        "required": ["v", *records.COMMON],
        "properties": {
            "v": {"const": records.VERSION},
            **_properties(records.COMMON),
            "event": {"enum": list(records.EVENTS)},
        },
        "allOf": [rule for event in records.EVENTS for rule in _rules(event)],
    }


def _rules(event: str) -> Iterator[dict[str, Any]]:
    """Yield rules for `allOf`: the fields that an event requires of all tasks, then those of some tasks."""
    least = records.required_fields(event, "ps", 0, program=True)
    optional = records.OPTIONAL.get(event, {})
    yield _rule({"event": event}, {}, least, optional)
    required: list[tuple[Mapping[str, object], Mapping[str, object], Mapping[str, str]]] = [
        ({}, _NO_PROGRAM, records.required_fields(event, "ps", 0)),
        ({"job": "worker"}, _NO_PROGRAM, records.required_fields(event, "worker", 1)),
        ({"job": "worker", "index": 0}, _NO_PROGRAM, records.required_fields(event, "worker", 0)),
        ({"job": records.EVALUATOR}, {}, records.required_fields(event, records.EVALUATOR, 0, program=True)),
    ]
    known = least
    for values, more, fields in required:
        fresh = {name: kind for name, kind in fields.items() if name not in known}
        if fresh:
            yield _rule({"event": event, **values}, more, fresh)
            known = known | (fresh if not values else {})


def _rule(
    values: Mapping[str, object],
    more: Mapping[str, object],
    required: Mapping[str, str],
    optional: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    condition = {name: {"const": value} for name, value in values.items()}
    then = {"required": list(required), "properties": _properties({**(optional or {}), **required})}
    return {"if": {"properties": condition, **more}, "then": then}


def _properties(kinds: Mapping[str, str]) -> dict[str, object]:
    return {name: _KINDS[kind] for name, kind in kinds.items()}

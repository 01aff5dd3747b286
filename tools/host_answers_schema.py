"""The answers of hosts as JSON Schema, made from the tables with which the controller checks answers.

https://json-schema.org/draft/2020-12. `make docs` writes it to docs/schema/, for tools that are not ours.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

from plugins.module_utils.environments.environment import every_environment
from plugins.module_utils.people import BEGUN, PERSON
from psfleet.run.host_answers import (
    ANSWERS,
    COMMON_FIELDS,
    DETAILS,
    HASH_OR_NONE,
    LONGEST_WORDS,
    MOST_CHARACTERS,
    MOST_ENTRIES,
    PARTS,
    PYTHON,
    Fields,
)
from trainer.host.check import State
from trainer.host.task_traces import NUMBER_LIMIT, RUN_ID

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string", "maxLength": MOST_CHARACTERS}
_COUNT: Schema = {"type": "integer", "minimum": 0, "exclusiveMaximum": NUMBER_LIMIT}
_NUMBER: Schema = {"type": "number", "exclusiveMinimum": -NUMBER_LIMIT, "exclusiveMaximum": NUMBER_LIMIT}
_FIGURE: Schema = {"anyOf": [{"type": "null"}, _NUMBER]}
_DIFFERENCE: Schema = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]},
}


def _text_of(pattern: re.Pattern[str]) -> Schema:
    return {"type": "string", "pattern": f"^(?:{pattern.pattern})$"}


def _or_empty(pattern: re.Pattern[str]) -> Schema:
    return {"anyOf": [{"const": ""}, _text_of(pattern)]}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "maxItems": MOST_ENTRIES, "items": items}


def _named(values: Schema) -> Schema:
    return {"type": "object", "maxProperties": MOST_ENTRIES, "additionalProperties": values}


KINDS: Mapping[str, Schema] = {
    "text": _TEXT,
    "words": {"type": "string", "maxLength": LONGEST_WORDS},
    "run or none": _or_empty(RUN_ID),
    "state": {"enum": list(get_args(State))},
    "run": _text_of(RUN_ID),
    "person": _or_empty(PERSON),
    "begun": _or_empty(BEGUN),
    "switch": {"type": "boolean"},
    "whole": {"type": "integer", "exclusiveMinimum": -NUMBER_LIMIT, "exclusiveMaximum": NUMBER_LIMIT},
    "count": _COUNT,
    "count or none": {"anyOf": [{"type": "null"}, _COUNT]},
    "moment": _NUMBER,
    "environment": {"enum": [each.name for each in every_environment()]},
    "python": _text_of(PYTHON),
    "system": {"type": "object", "additionalProperties": {"type": "string"}},
    "hash": _text_of(HASH_OR_NONE),
    "hashes": _list_of(_text_of(HASH_OR_NONE)),
    "figure": _FIGURE,
    "object": {"type": "object"},
    "figures": _named(_FIGURE),
    "texts": _list_of(_TEXT),
    "named texts": _named(_list_of(_TEXT)),
    "counts": _list_of(_COUNT),
    "places": {"type": "array", "items": _COUNT},
    "named counts": _named(_COUNT),
    "differences": {"anyOf": [_DIFFERENCE, {"type": "array", "items": _DIFFERENCE}]},
}


def schema() -> dict[str, Any]:
    """Return one JSON Schema, whose `$defs` has the answer to each step that may be run on a host."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What a host answers to each step of psfleet",
        "description": (
            "$defs has the kinds of values, then each step, or step and state. The controller drops other "
            "fields. Of an answer with `failed` it keeps what `failed step` has. A task has the fields of "
            "`details` where they are requested; its `name` is its `job` and `index`. `deployed` is a "
            "cluster plan or its hash."
        ),
        "$defs": {
            **{_kind(name): of_kind for name, of_kind in KINDS.items()},
            "failed step": _object(COMMON_FIELDS),
            "details": _object(DETAILS),
            **{name: _object(COMMON_FIELDS, fields) for name, fields in ANSWERS.items()},
        },
    }


def _object(*groups: Fields) -> dict[str, Any]:
    named = [(kind, name) for fields in groups for kind, names in fields.items() for name in names.split()]
    return {
        "type": "object",
        "required": [name for _, name in named if not name.endswith("?")],
        "properties": {name.rstrip("?"): _of(kind, name.rstrip("?")) for kind, name in named},
    }


def _of(kind: str, name: str) -> Schema:
    return _list_of(_object(PARTS[name])) if kind == "objects" else {"$ref": f"#/$defs/{_kind(kind)}"}


def _kind(name: str) -> str:
    return f"kind-{name.replace(' ', '-')}"

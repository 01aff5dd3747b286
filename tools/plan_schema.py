"""The cluster plan as JSON Schema, made from the classes that read it.

https://json-schema.org/draft/2020-12. `make docs` writes it to docs/schema/, for tools that are not ours.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from trainer.contract.plan import JOBS, VERSION, ClusterPlan, Job, PlannedTask

_COUNT: Mapping[str, object] = {"type": "integer", "minimum": 0}
_TEXT: Mapping[str, object] = {"type": "string"}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `plan.json`."""
    kinds: dict[Any, Mapping[str, object]] = {
        str: _TEXT,
        int: _COUNT,
        tuple[int, ...]: {"type": "array", "items": _COUNT},
        Job: {"enum": list(JOBS)},
    }
    task = _object({name: kinds[kind] for name, kind in get_type_hints(PlannedTask).items()})
    kinds[tuple[PlannedTask, ...]] = {"type": "array", "items": task}
    hints = get_type_hints(ClusterPlan)
    of_plan = {each.name: kinds[hints[each.name]] for each in fields(ClusterPlan)}
    a_hash = {"type": "string", "pattern": "^[0-9a-f]{12}$"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A cluster plan of psfleet, version {VERSION}",
        "description": "plan.json; docs/contracts.md has what the hash is made of.",
        **_object({"version": {"const": VERSION}, "hash": a_hash, **of_plan}),
    }


def _object(properties: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": dict(properties),
        "additionalProperties": False,
    }

"""JSON files that other processes may read while they are written."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, content: object, indent: int | None = None) -> None:
    """Write or replace a file atomically: readers get either the old content or the whole new content.

    Numbers that are not finite are written as `null`. `indent` is the blanks of a level; None writes one
    line. Raises OSError, also if the folder is missing.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(finite(content), indent=indent, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def finite(value: object) -> object:
    """Return a copy of `value` as JSON has it: None for nan and infinity, lists for tuples, texts for keys.

    Example: finite({1: (0.5, math.nan)}) -> {"1": [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file is missing or damaged, or has other JSON."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}

"""JSON files that other processes may read while they are written."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, content: object, indent: int | None = None) -> None:
    """Write or replace a file atomically: readers get either the old content or the whole new content.

    Numbers that are not finite are written as `null`. Raises OSError.
    """
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(finite(content), indent=indent, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def finite(value: object) -> object:
    """Return a copy of `value` with None in place of numbers that are not finite, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if the file is missing or damaged, or has no object."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}

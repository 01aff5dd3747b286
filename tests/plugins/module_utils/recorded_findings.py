"""Tables of what a check finds and advises, word for word: cases by their names, in the folder `findings`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parent / "findings"


def cases(table: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each case of a table."""
    found = yaml.safe_load((FOLDER / f"{table}.yml").read_text(encoding="utf-8")) or {}
    return pytest.mark.parametrize("case", found.values(), ids=list(found))


def told(value: Any) -> Any:  # noqa: ANN401
    """Return a value of a table as facts hold it: tuples for lists."""
    if isinstance(value, dict):
        return {name: told(item) for name, item in value.items()}
    return tuple(map(told, value)) if isinstance(value, list) else value

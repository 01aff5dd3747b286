"""The terminal that people see, from an action's worker process, which has none of its own."""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN_COLUMNS = 80  # of a terminal that does not tell its size


def terminal_columns() -> int:
    """Return the width of the terminal, or 0 where there is none: what is shown goes through the parent's."""
    try:
        with Path(f"/proc/{os.getppid()}/fd/1").open("rb", buffering=0) as stream:
            return os.get_terminal_size(stream.fileno()).columns or UNKNOWN_COLUMNS
    except OSError:
        return 0

"""The trainer's exit codes for templates, from their one home."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from ansible.errors import AnsibleFilterError

from trainer import exit_codes as codes


def exit_codes(name: str) -> list[int]:
    """Return the codes that trainer/exit_codes.py lists under `name`, such as NO_RESTART.

    Raises AnsibleFilterError where it lists none.
    """
    value = getattr(codes, name, None)
    if not isinstance(value, tuple):
        raise AnsibleFilterError(f"trainer/exit_codes.py has no list {name}")
    return list(value)


class FilterModule:
    """The filter `exit_codes`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"exit_codes": exit_codes}

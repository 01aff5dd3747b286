"""The filter `with_inventory`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins package is not installed

from plugins.hints import with_inventory


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"with_inventory": with_inventory}

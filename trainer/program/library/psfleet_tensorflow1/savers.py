"""Savers that write one file, on the disk of the task that saves: there is no disk that all tasks share."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from psfleet_tensorflow1.device_filters import own_device


def save_on_own_disk(module: ModuleType) -> None:
    """Have checkpoints written and read by the own task; else each ps has a part, which nobody restores."""
    initialise, build = module.Saver.__init__, module.Saver._build

    @functools.wraps(initialise)
    def unsharded(
        self: Any, var_list: Any = None, reshape: Any = False, sharded: Any = False, *more: Any, **named: Any
    ) -> None:
        initialise(self, var_list, reshape, sharded and not own_device(), *more, **named)

    @functools.wraps(build)
    def building(self: Any, *arguments: Any, **named: Any) -> Any:
        own = own_device()
        with module.ops.device(f"{own}/cpu:0" if own else ""):
            return build(self, *arguments, **named)

    module.Saver.__init__, module.Saver._build = unsharded, building

"""Savers that write one file on the disk of the task that saves, because tasks share no disk."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from psfleet_tensorflow1.device_filters import own_device


def save_on_own_disk(module: ModuleType) -> None:
    """Wrap savers, so that this process's own task writes and reads checkpoints.

    Otherwise each ps would write its part to its own disk, where no task could restore it.
    """
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

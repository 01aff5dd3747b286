"""Writes the checkpoints of TensorFlow 2's coordinator to its own disk, unless the program chooses another.

Otherwise each ps would write its variables to its own disk, because tasks share no disk.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from psfleet_observer.guard import guarded

_coordinates = {"this process": False}


def wrap_strategy(module: ModuleType) -> None:
    """Wrap ParameterServerStrategyV2, whose creation shows that this process is a coordinator."""
    initialise = module.ParameterServerStrategyV2.__init__

    @functools.wraps(initialise)
    def noting(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        _coordinates["this process"] = True

    module.ParameterServerStrategyV2.__init__ = noting


def wrap_options(module: ModuleType) -> None:
    """Wrap CheckpointOptions, so that a coordinator reads and writes checkpoints on its own disk.

    A device that the program names stays. In other processes, nothing changes.
    """
    chosen = module.CheckpointOptions.experimental_io_device

    def device(options: Any) -> str | None:
        return chosen.__get__(options) or (_own_device() if _coordinates["this process"] else None)

    module.CheckpointOptions.experimental_io_device = property(device, chosen.__set__)


@guarded
def _own_device() -> str:
    from tensorflow.python.eager import context

    return f"{context.context().host_address_space()}/device:CPU:0"

"""Checkpoints of a coordinator of TensorFlow 2 lie on its own disk, unless the program says where.

Each ps would write its variables on its own otherwise: there is no disk that all tasks share.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from psfleet_observer.guard import guarded

_coordinates = {"this process": False}


def wrap_strategy(module: ModuleType) -> None:
    """Note that this process coordinates others."""
    initialise = module.ParameterServerStrategyV2.__init__

    @functools.wraps(initialise)
    def noting(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        _coordinates["this process"] = True

    module.ParameterServerStrategyV2.__init__ = noting


def wrap_options(module: ModuleType) -> None:
    """Let the device that reads and writes be one of this process, where the program names none."""
    asked = module.CheckpointOptions.experimental_io_device

    def device(options: Any) -> str | None:
        return asked.__get__(options) or (_own_device() if _coordinates["this process"] else None)

    module.CheckpointOptions.experimental_io_device = property(device, asked.__set__)


@guarded
def _own_device() -> str:
    from tensorflow.python.eager import context

    return f"{context.context().host_address_space()}/device:CPU:0"

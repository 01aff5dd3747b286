"""A shorter wait of workers for the chief's variables.

By default a TensorFlow worker looks for the variables every 30 s, while the other workers train without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

_ARGUMENT, _POLL_SECONDS = "recovery_wait_secs", 0.5


def poll_often(module: ModuleType) -> None:
    """Let SessionManager and Supervisor poll twice a second; a script's own `recovery_wait_secs` stays."""
    for name in ("SessionManager", "Supervisor"):
        if owner := vars(module).get(name):
            _change_default(inspect.unwrap(owner.__init__))


def _change_default(initialise: Callable[..., object]) -> None:
    parameters = inspect.signature(initialise).parameters.values()
    initialise.__defaults__ = tuple(
        _POLL_SECONDS if each.name == _ARGUMENT else each.default
        for each in parameters
        if each.default is not each.empty
    )

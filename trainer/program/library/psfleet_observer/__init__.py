"""Looks, from within its process, at how a program trains, and records it as `psfleet_records` does.

The program is not changed: parts of TensorFlow are wrapped as they are loaded. What goes wrong in here is
said in the log and ends the looking, never the program. One that calls `psfleet_records` is left alone.

What is seen: steps of sessions of TensorFlow 1 (sessions.py), by the graph that they run (graphs.py); the
parameter servers, through a session of one's own (meeting.py); what a coordinator of TensorFlow 2 has its
workers do (coordinator.py).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from psfleet_observer.guard import guarded

# Module of TensorFlow -> what is wrapped in it, as `module:function` here.
_WRAPPED = {
    "tensorflow.python.client.session": "sessions:wrap_sessions",
    "tensorflow.python.ops.gradients_impl": "graphs:wrap_gradients",
    "tensorflow.python.training.optimizer": "graphs:wrap_optimizers",
    "tensorflow.python.training.sync_replicas_optimizer": "graphs:wrap_synchronous_optimizers",
    "tensorflow.python.training.basic_session_run_hooks": "sessions:wrap_last_step",
    "tensorflow.python.training.server_lib": "sessions:wrap_servers",
    "tensorflow.python.distribute.coordinator.cluster_coordinator": "coordinator:wrap_coordinator",
}


def begin() -> None:
    """Wrap these modules when the program loads them, where psfleet runs it."""
    if os.environ.get("PSFLEET_RUN_DIRECTORY"):
        sys.meta_path.insert(0, _AfterLoading(_WRAPPED))


class _AfterLoading(MetaPathFinder):
    """Finds modules as the other finders do, and has a function called with each once it is loaded."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        self._functions = functions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, whose loader calls the function; None for all other modules."""
        if fullname not in self._functions:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            then = self._functions[fullname]
            spec.loader.exec_module = functools.partial(_load, load, then)  # type: ignore[method-assign]
        return spec


def _load(load: Callable[[ModuleType], None], then: str, module: ModuleType) -> None:
    load(module)
    _wrap(then, module)


@guarded
def _wrap(then: str, module: ModuleType) -> None:
    name, _, function = then.partition(":")
    getattr(importlib.import_module(f"psfleet_observer.{name}"), function)(module)

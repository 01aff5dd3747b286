"""Lets a program for TensorFlow 1 run unchanged: `import tensorflow` gives `tensorflow.compat.v1`.

Parts of TensorFlow are wrapped as they are loaded, so that a program which assumes a single machine or a
shared disk works on several hosts. If a part cannot be wrapped, the log says so.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from types import ModuleType

import psfleet_defaults
from psfleet_imports import AfterLoading, or_leave

# Module of TensorFlow -> the function that wraps it, as `module:function`; psfleet_defaults.py wraps more.
_WRAPPED = {
    "tensorflow.python.client.session": ".device_filters:filter_sessions",
    "tensorflow.python.training.coordinator": ".waiting:end_soon",
}


def begin() -> None:
    """If psfleet runs the program, let `import tensorflow` give TensorFlow 1, wrapped for several hosts.

    Without psfleet, do nothing.
    """
    if os.environ.get("PSFLEET_RUN_DIRECTORY"):
        if importlib.util.find_spec("tf_keras"):  # tf_keras implements `tf.layers`
            os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        psfleet_defaults.begin()
        functions = {module: or_leave(functools.partial(_wrap, then)) for module, then in _WRAPPED.items()}
        sys.meta_path.insert(0, AfterLoading(functions | {"tensorflow": _give_tensorflow1}))


def _give_tensorflow1(module: ModuleType) -> None:
    from psfleet_tensorflow1 import namespace

    namespace.give_tensorflow1(module)


def _wrap(then: str, module: ModuleType) -> None:
    name, _, function = then.partition(":")
    getattr(importlib.import_module(name, __name__), function)(module)

"""The observer, which runs in a program's process and records its training as `psfleet_records` does.

It wraps parts of TensorFlow as they are loaded, and does not change the program, with two exceptions.
Checkpoints that would be written in parts, on the disks of the ps, are written to the disk of the task that
saves: those of a coordinator of TensorFlow 2 that chooses no disk (checkpoints.py), and those of savers of
TensorFlow 1 (psfleet_own_disk.py). If the program does not say how often a worker polls for the chief's
variables, the worker polls more often than TensorFlow's default (psfleet_waiting.py). An error in the
observer is logged and ends the observation, never the program. A program that calls `psfleet_records` is not
observed.

The observer sees:

- the steps of TensorFlow 1's sessions (sessions.py), by the graphs that the sessions run (graphs.py,
  training_runs.py);
- the ps, through a session of its own (meeting.py);
- tasks that wait (waiting.py) or only serve (serving.py);
- the functions that a coordinator of TensorFlow 2 gives its workers (coordinator.py);
- the places where a program saves (saves.py), even if the program calls `psfleet_records`.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from types import ModuleType

import psfleet_defaults
from psfleet_imports import AfterLoading

from psfleet_observer.guard import guarded, say

# Module of TensorFlow -> the function that wraps parts of it, as `module:function`; psfleet_defaults.py
# wraps more.
_WRAPPED = {
    "tensorflow.python.client.session": ".sessions:wrap_sessions",
    "tensorflow.python.ops.gradients_impl": ".graphs:wrap_gradients",
    "tensorflow.python.eager.backprop": ".graphs:wrap_tapes",
    "tensorflow.python.training.optimizer": ".graphs:wrap_optimizers",
    "tensorflow.python.training.sync_replicas_optimizer": ".graphs:wrap_synchronous_optimizers",
    "tensorflow.python.training.basic_session_run_hooks": ".sessions:wrap_last_step",
    "tensorflow.python.training.server_lib": ".sessions:wrap_servers",
    "tensorflow.python.distribute.coordinator.cluster_coordinator": ".coordinator:wrap_coordinator",
    "tensorflow.python.distribute.coordinator.values": ".coordinator:wrap_results",
    "tensorflow.python.distribute.parameter_server_strategy_v2": ".checkpoints:wrap_strategy",
    "tensorflow.python.checkpoint.checkpoint_options": ".checkpoints:wrap_options",
    "tensorflow.python.training.session_manager": ".waiting:wrap_session_managers",
}
# Module of TensorFlow, Keras or tf.estimator -> the function of saves.py that wraps it. This goes on even
# after the rest of the observation has ended.
_SAVING = {
    "tensorflow.python.training.saver": "wrap_savers",
    "tensorflow.python.checkpoint.checkpoint": "wrap_checkpoints",
    "tensorflow.python.saved_model.builder_impl": "wrap_builders",
    "tensorflow.python.saved_model.save": "wrap_saved_models",
    "tensorflow.python.summary.writer.writer": "wrap_writers",
    "tensorflow.python.ops.summary_ops_v2": "wrap_file_writers",
    "tensorflow_estimator.python.estimator.estimator": "wrap_estimators",
    "keras.saving.saving_api": "wrap_keras",  # of Keras 2.12
    "keras.src.saving.saving_api": "wrap_keras",
    "tf_keras.src.saving.saving_api": "wrap_keras",
}


def begin() -> None:
    """If psfleet runs the program, wrap the modules in _WRAPPED and _SAVING once the program has loaded them.

    Without psfleet, do nothing.
    """
    if os.environ.get("PSFLEET_RUN_DIRECTORY"):
        psfleet_defaults.begin()
        functions = {module: functools.partial(_wrap, then) for module, then in _WRAPPED.items()}
        functions |= {module: functools.partial(_wrap_saves, then) for module, then in _SAVING.items()}
        sys.meta_path.insert(0, AfterLoading(functions))


@guarded
def _wrap(then: str, module: ModuleType) -> None:
    name, _, function = then.partition(":")
    getattr(importlib.import_module(name, __name__), function)(module)


def _wrap_saves(function: str, module: ModuleType) -> None:
    try:
        getattr(importlib.import_module("psfleet_observer.saves"), function)(module)
    except Exception as error:
        say(f"files that {module.__name__} saves are not recorded ({type(error).__name__}: {error})")

"""Other defaults of TensorFlow 1, for tasks that share no disk: with the observer, and with the option."""

from __future__ import annotations

import functools
import sys

from psfleet_imports import AfterLoading, or_leave
from psfleet_own_disk import note_servers, save_on_own_disk
from psfleet_waiting import poll_often

# Module of TensorFlow -> the function that wraps it.
_WRAPPED = {
    "tensorflow.python.training.server_lib": note_servers,
    "tensorflow.python.training.saver": save_on_own_disk,
    "tensorflow.python.training.session_manager": poll_often,
    "tensorflow.python.training.supervisor": poll_often,
}


@functools.cache
def begin() -> None:
    """Wrap the modules once the program has loaded them; each is wrapped once, however often this runs."""
    sys.meta_path.insert(0, AfterLoading({module: or_leave(wrap) for module, wrap in _WRAPPED.items()}))

"""Notes where a program saves checkpoints, models and summaries; psfleet collects these places.

Each place is noted once, after the first save, in the task's file in the run's directory.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from psfleet_observer.guard import say

# Folders that many programs share: in them only the saved files are noted, elsewhere the whole folder.
_COMMON = ("", "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - of the program's own choice
_NUMBER = re.compile(r"-[0-9]+$")
_MOST = 200

_noted: set[tuple[str, str]] = set()
_saving = threading.local()


def wrap_savers(module: ModuleType) -> None:
    """Wrap the savers of TensorFlow 1, to note checkpoints."""
    _note(module.Saver, "save", _argument(2, "save_path"), "checkpoint")


def wrap_checkpoints(module: ModuleType) -> None:
    """Wrap the saver of TensorFlow 2, to note checkpoints."""
    _note(module.TrackableSaver, "save", _argument(1, "file_prefix"), "checkpoint")


def wrap_builders(module: ModuleType) -> None:
    """Wrap the builders of TensorFlow 1, to note a SavedModel but not the checkpoint in it."""
    for builder in (module.SavedModelBuilder, module._SavedModelBuilder):
        if "add_meta_graph_and_variables" in vars(builder):
            _note(builder, "add_meta_graph_and_variables", lambda *_, **__: None, "")
    _note(module._SavedModelBuilder, "save", lambda _, builder, *__, **___: builder._export_dir, "SavedModel")


def wrap_estimators(module: ModuleType) -> None:
    """Wrap estimators, to note a SavedModel at its final path: they save it elsewhere and rename it."""
    _note(module.Estimator, "_export_all_saved_models", lambda path, *_, **__: path, "SavedModel")


def wrap_saved_models(module: ModuleType) -> None:
    """Wrap tf.saved_model.save, to note a SavedModel of TensorFlow 2."""
    _note(module, "save_and_return_nodes", _argument(1, "export_dir"), "SavedModel")


def wrap_keras(module: ModuleType) -> None:
    """Wrap Keras' functions, to note saved models and weights."""
    for name in ("save_model", "save_weights"):
        _note(module, name, _argument(1, "filepath"), "Keras")


def wrap_writers(module: ModuleType) -> None:
    """Wrap the writers of TensorFlow 1, to note summaries."""
    _note(module.FileWriter, "__init__", _argument(1, "logdir"), "summaries")


def wrap_file_writers(module: ModuleType) -> None:
    """Wrap the writers of TensorFlow 2, to note summaries."""
    _note(module, "create_file_writer_v2", _argument(0, "logdir"), "summaries")


def _argument(place: int, name: str) -> Callable[..., object]:
    """Return a function of a call's result and arguments, which returns one of the arguments.

    The argument is given by its index `place`, else by its `name`; the function returns None if the call has
    neither.
    """

    def argument(_result: object, *arguments: object, **named: object) -> object:
        return arguments[place] if len(arguments) > place else named.get(name)

    return argument


def _note(owner: Any, name: str, path: Callable[..., object], kind: str) -> None:
    """Wrap the function `name` of `owner`, to note where its successful calls save; nothing if it is missing.

    Calls inside another noted call are not noted. `path` gets the call's result and arguments, and returns
    the saved path. `kind` is a word for the file of notes, such as "checkpoint".
    """
    save = getattr(owner, name, None)
    if save is None:
        return

    @functools.wraps(save)
    def noting(*arguments: Any, **named: Any) -> Any:
        with _outermost() as is_outermost:
            result = save(*arguments, **named)
        if is_outermost:
            _write(path(result, *arguments, **named), kind)
        return result

    setattr(owner, name, noting)


@contextmanager
def _outermost() -> Iterator[bool]:
    inside = getattr(_saving, "inside", False)
    _saving.inside = True
    try:
        yield not inside
    finally:
        _saving.inside = inside


def _write(path: object, kind: str) -> None:
    try:
        # The path may be a tensor, whose value only the session knows.
        place = _place(os.fsdecode(path), kind) if isinstance(path, str | bytes | os.PathLike) else ""
        if not place or (place, kind) in _noted or len(_noted) >= _MOST:
            return
        _noted.add((place, kind))
        folder = Path(os.environ["PSFLEET_RUN_DIRECTORY"], "saves")
        folder.mkdir(exist_ok=True)
        name = f"{os.environ['PSFLEET_JOB']}{os.environ['PSFLEET_TASK_INDEX']}.jsonl"
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"path": place, "kind": kind}) + "\n")
    except Exception as error:  # the program must not fail because of this
        say(f"its save to {path!r} is not recorded ({type(error).__name__}: {error})")


def _place(text: str, kind: str) -> str:
    """Return the path to collect for a save to the path `text`.

    It is relative if it is in the run's directory, else absolute. Of a checkpoint or Keras file, this is its
    whole folder, unless many programs share the folder. Return "" and URLs as they are.
    """
    if not text or "://" in text:
        return text
    run = os.path.realpath(os.environ["PSFLEET_RUN_DIRECTORY"])
    # Links are resolved here, because no link is followed when the place is collected.
    place = os.path.realpath(_NUMBER.sub("", text) if kind == "checkpoint" else text)
    folder = place.rpartition("/")[0]
    common = {*_COMMON, run}
    if kind in {"checkpoint", "Keras"} and folder not in common:
        place = folder
    elif kind == "summaries" and place in common:
        place = f"{place}/events.out.tfevents"
    return os.path.relpath(place, run) if f"{place}/".startswith(f"{run}/") else place

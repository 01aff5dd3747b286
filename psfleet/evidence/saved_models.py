"""Finds the models that a run left: the files that TensorFlow loads, their size, and how to load them."""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from plugins.module_utils.saved_places import (
    NOTES,
    SAVED,
    SAVED_MODEL_FILES,
    SAVED_MODEL_FOLDERS,
    SavedPlace,
    noted_places,
)
from psfleet.evidence.answer import listed, size
from psfleet.evidence.checkpoint_steps import global_step_in
from psfleet.evidence.untrusted_files import MOST_OF_JSON, read_bytes
from trainer.contract.export import EXPORT
from trainer.host.wording import counted

# Folders of a run's folder, in the order in which they are reported.
_FOLDERS = (EXPORT, SAVED, "checkpoints", "output", "other_hosts")
_MOST_FOLDERS, _MOST_SHOWN = 20_000, 4
_MOST_OF_NOTES, _MOST_TASKS = 64_000, 1000
_SAVED_MODEL = {"saved_model.pb", "saved_model.pbtxt"}
# The checkpoint in a SavedModel.
_VARIABLES = ("variables", "variables")
_PART = re.compile(r"(.+)\.data-([0-9]{5})-of-([0-9]{5})")
# A checkpoint of a run with tables has more files beside TensorFlow's own: the rows, and a manifest with the
# SHA-256 of each file of rows.
_MANIFEST, _ROWS = "tables.json", ".rows"
_OF_TABLES = re.compile(rf"{re.escape(_MANIFEST)}|[A-Za-z0-9_.-]+{re.escape(_ROWS)}")
_SHA256 = re.compile(rb'"[0-9a-f]{64}"')
_NUMBERED = re.compile(r"(.*?)(?:-([0-9]{1,18}))?")
_KERAS = {".keras": "Keras model", ".h5": "Keras model", ".weights.h5": "Keras weights"}
# Models that are complete in themselves come first.
_LOADED_BY = {
    "SavedModel": "tf.saved_model.load({})",
    "Keras model": "tf.keras.models.load_model({})",
    "Keras weights": "model.load_weights({})",
    "checkpoint": "tf.train.load_checkpoint({})",
}


@dataclass(frozen=True)
class CollectedModel:
    """A model that was collected with a run; `path` is relative to the run's folder.

    `kind` is "SavedModel", "Keras model", "Keras weights" or "checkpoint". `bytes` is the size of its files
    together. `missing` says in words which of its files are missing; "" if none is.
    """

    path: str
    kind: str
    bytes: int
    missing: str = ""

    def in_words(self, folder: str) -> str:
        """Return in words the model's kind and size, and the Python code that loads it from `folder`.

        If files are missing, return which files are missing instead.
        Example: "Keras model, 12.5 kB: tf.keras.models.load_model('runs/r1/output/m.keras')"
        """
        path = repr(f"{folder}/{self.path}")
        if self.missing:
            return f"{self.kind} {path} lacks {self.missing}: see what was left out"
        return f"{self.kind}, {size(self.bytes)}: {_LOADED_BY[self.kind].format(path)}"

    def behind(self, folder: Path, steps: int) -> tuple[str, bool]:
        """Return (how far the model is behind the `steps` of its run, whether it was trained at all).

        `folder` is the run's folder. The text is "", and the second is True, if the model is not behind or if
        its global step is unknown. The second is False only for a model of step 0.
        """
        variables = _VARIABLES if self.kind == "SavedModel" else ()
        step = global_step_in(folder.joinpath(self.path, *variables))
        if step is None or step >= steps:
            return "", True
        how = f"{counted(steps - step, 'step')} before the end" if step else "not the trained model"
        return f"{Path(self.path).name} was saved at step {step} of {steps}: {how}", step > 0


def find_models(folder: Path) -> list[CollectedModel]:
    """Return the models in a run's folder, in the order SavedModel, Keras model, Keras weights, checkpoint.

    Models of other_hosts/ come after all others. Of numbered checkpoints, only the last is returned. No link
    is followed. Return [] if there is none.
    """
    kinds = list(_LOADED_BY)
    found = [model for name in _FOLDERS for model in _below(folder, name)]
    return sorted(found, key=lambda model: (model.path.startswith("other_hosts/"), kinds.index(model.kind)))


def model_lines(folder: Path, shown_folder: str, steps: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield (line, whether the line is good news) for each collected model; if there is none, say why.

    `folder` is the run's folder, and `shown_folder` the same folder as people see it. A model that was saved
    before the last of the run's `steps` has a second line that says so. Of more than four models, the first
    four are shown, and one line names the others.
    """
    models = find_models(folder)
    for model in models[:_MOST_SHOWN]:
        yield model.in_words(shown_folder), not model.missing
        behind, is_trained = model.behind(folder, steps)
        if behind:
            yield behind, is_trained
    if more := models[_MOST_SHOWN:]:
        yield f"and {len(more)} more: {listed(model.path for model in more)}", True
    if not models:
        yield from _absent(folder)


def _absent(folder: Path) -> Iterator[tuple[str, bool]]:
    elsewhere: list[str] = []
    lost: list[str] = []
    for notes in sorted((folder / NOTES).glob("*.jsonl"))[:_MOST_TASKS]:
        for place in _noted(notes):
            saved = f"{notes.stem} saved to {place.path}"
            if place.is_elsewhere:
                elsewhere.append(saved)
            elif place.kind != "summaries":
                came = place.path_on_controller(notes.stem)
                why = (
                    "none of it was collected: see what was left out"
                    if came
                    else "which was deleted when the task ended"
                )
                lost.append(f"{saved}, {why}")
    if lost:
        yield f"none was collected: {listed(lost)}", False
    elif elsewhere:
        yield listed(elsewhere), True
    else:
        yield (
            "none was collected: trainer_program_collect names files that psfleet does not see a program "
            "save",
            False,
        )


def _noted(notes: Path) -> list[SavedPlace]:
    try:
        return noted_places(read_bytes(notes, _MOST_OF_NOTES))
    except OSError:
        return []


def _below(folder: Path, name: str) -> Iterator[CollectedModel]:
    walked = os.walk(folder / name) if not (folder / name).is_symlink() else iter(())
    for count, (place, folders, names) in enumerate(walked):
        if count >= _MOST_FOLDERS:
            return
        folders.sort()
        path = os.path.relpath(place, folder)
        if _SAVED_MODEL & {*names}:
            # A checkpoint inside a SavedModel is part of it. Other files may lie beside a SavedModel that was
            # saved directly into the task's /tmp.
            parts = [os.path.join(place, each) for each in SAVED_MODEL_FOLDERS if each in folders]  # noqa: PTH118 - as os.walk has it
            inner = [(place, [], {*names} & {*SAVED_MODEL_FILES}), *chain.from_iterable(map(os.walk, parts))]
            total = sum(_size(within, each) for within, _, files in inner for each in files)
            yield CollectedModel(path, "SavedModel", total)
            folders[:] = [each for each in folders if each not in SAVED_MODEL_FOLDERS]
        sizes = {each: _size(place, each) for each in sorted(names)}
        for each, total in sizes.items():
            suffix = next((end for end in (".weights.h5", ".h5", ".keras") if each.endswith(end)), "")
            if suffix:
                yield CollectedModel(f"{path}/{each}", _KERAS[suffix], total)
        for prefix, total in _checkpoints(sizes).items():
            missing = _missing_rows(Path(place, prefix), sizes)
            yield CollectedModel(f"{path}/{prefix}", "checkpoint", total, missing)


def _checkpoints(sizes: dict[str, int]) -> dict[str, int]:
    """Return {name: bytes} of each complete checkpoint in a folder.

    `sizes` is {file name: bytes} of the folder. Of a numbered series, such as model-10 and model-20, only the
    last complete one is returned. Files with rows of its tables count in the bytes.
    """
    parts: dict[str, list[str]] = {}
    for name in sizes:
        if part := _PART.fullmatch(name):
            parts.setdefault(part[1], []).append(name)
    newest: dict[str, tuple[int, str]] = {}
    for prefix, names in parts.items():
        count, numbered = int(names[0][-5:]), _NUMBERED.fullmatch(prefix)
        if f"{prefix}.index" in sizes and len(names) == count and numbered:
            found = (int(numbered[2] or 0), prefix)
            newest[numbered[1]] = max(newest.get(numbered[1], found), found)
    return {
        prefix: sizes[f"{prefix}.index"]
        + sum(sizes[name] for name in parts[prefix])
        + sum(total for name, total in sizes.items() if _is_of_tables(name, prefix))
        for _, prefix in newest.values()
    }


def _missing_rows(checkpoint: Path, names: Collection[str]) -> str:
    """Return, in words, which files with table rows of a checkpoint are missing; "" if none is.

    `names` are the names of the files in the checkpoint's folder. A checkpoint without tables has no such
    files.
    """
    manifest = f"{checkpoint.name}.{_MANIFEST}"
    there = sum(name.endswith(_ROWS) and _is_of_tables(name, checkpoint.name) for name in names)
    if manifest not in names:
        return f"the list of {counted(there, 'file')} with rows" if there else ""
    try:
        expected = len(_SHA256.findall(read_bytes(checkpoint.with_name(manifest), MOST_OF_JSON)))
    except OSError as error:
        return f"a list of its rows that can be read ({error})"
    return f"{expected - there} of {counted(expected, 'file')} with rows" if there < expected else ""


def _is_of_tables(name: str, prefix: str) -> bool:
    return name.startswith(f"{prefix}.") and bool(_OF_TABLES.fullmatch(name, len(prefix) + 1))


def _size(folder: str, name: str) -> int:
    try:
        return Path(folder, name).lstat().st_size
    except OSError:
        return 0

"""The places where a program saves, and the places to which its files are collected.

They are known from the observer, or from the inventory. A place is a path: absolute in the task's own file
system, or relative to the run's directory, which is the program's working directory. Each line of
`saves/<task>.jsonl` in a run's directory describes one place (docs/contracts.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath

# Names of folders in a run's directory, and in the run's folder on the controller.
NOTES, SAVED = "saves", "saved"
# Folders of the run's directory that are always collected.
COLLECTED = ("checkpoints", "summaries", "output")
# A task's /tmp and /var/tmp are one folder, which is kept in a folder that root owns, beside the run's
# directory.
TEMPORARY, TASKS_TMP = ("tmp", "var/tmp"), ".tmp"
# The parts of a SavedModel. If a model is saved directly into the task's /tmp or the run's directory, only
# these are collected.
SAVED_MODEL = "SavedModel"
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "keras_metadata.pb")
SAVED_MODEL_FOLDERS = ("assets", "assets.extra", "variables")
MOST_PLACES = 200
LONGEST = 1000


@dataclass(frozen=True)
class SavedPlace:
    """A path to which a program saves, and the `kind` of the saved files, such as "SavedModel".

    The `kind` is "" if it is unknown.
    """

    path: str
    kind: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether the path is not on the host but, for example, in an object store: it contains "://"."""
        return "://" in self.path

    @property
    def parts_below_tmp(self) -> tuple[str, ...] | None:
        """The parts of the path below the task's /tmp or /var/tmp; None if the path is not below them.

        For /tmp or /var/tmp itself: () if a SavedModel was saved there, else None.

        Example: SavedPlace("/tmp/logs/a").parts_below_tmp -> ("logs", "a")
        """
        for folder in TEMPORARY:
            if self.path == f"/{folder}":
                return self._root
            if self.path.startswith(f"/{folder}/"):
                return _plain(self.path.removeprefix(f"/{folder}/"))
        return None

    @property
    def parts_below_run(self) -> tuple[str, ...] | None:
        """The parts of the path below the run's directory; None if the path is not below it.

        For the run's directory itself: () if a SavedModel was saved there, else None.
        """
        if self.path == ".":
            return self._root
        return None if self.path.startswith("/") or self.is_elsewhere else _plain(self.path)

    @property
    def _root(self) -> tuple[str, ...] | None:
        """The parts of a path that is /tmp or the run's directory itself: () for a SavedModel, else None.

        Such a folder also has other files, and only the files of a SavedModel have known names.
        """
        return () if self.kind == SAVED_MODEL else None

    @property
    def members(self) -> tuple[str, ...]:
        """The names in the folder that are collected; () means all.

        These are the parts of a SavedModel if it was saved directly into /tmp or the run's directory, else
        ().
        """
        is_whole_folder = () in (self.parts_below_tmp, self.parts_below_run)
        return (*SAVED_MODEL_FILES, *SAVED_MODEL_FOLDERS) if is_whole_folder else ()

    def parts_on_host(self, run_id: str, task: str) -> tuple[str, ...]:
        """Return the parts of the path below the directory of all runs on the host; () if it is not below it.

        Example: SavedPlace("/tmp/logs").parts_on_host("r1", "worker0") -> (".tmp", "r1", "worker0", "logs")
        """
        if self.parts_below_run is not None:
            return (run_id, *self.parts_below_run)
        return () if self.parts_below_tmp is None else (TASKS_TMP, run_id, task, *self.parts_below_tmp)

    def path_on_controller(self, task: str) -> str:
        """Return the path, relative to the run's folder on the controller; "" if the place is not collected.

        Places in the folders COLLECTED keep their path. All others are below saved/<task>; there, /tmp and
        /var/tmp are "tmp".

        Examples, for worker0: "checkpoints/a" -> "checkpoints/a"; "a" -> "saved/worker0/a"; "/var/tmp/a" ->
        "saved/worker0/tmp/a".
        """
        if (parts := self.parts_below_run) is not None:
            return "/".join(parts if parts[:1] and parts[0] in COLLECTED else (SAVED, task, *parts))
        return "" if (parts := self.parts_below_tmp) is None else "/".join((SAVED, task, "tmp", *parts))


def noted_places(text: str | bytes) -> list[SavedPlace]:
    """Return the places in the text of `saves/<task>.jsonl`, in its order, each once, at most MOST_PLACES.

    Invalid lines are ignored. The notes may be wrong: perhaps the program did not save there after all.
    """
    found: dict[SavedPlace, None] = {}
    for line in text.splitlines():
        try:
            values = json.loads(line)
            path, kind = values["path"], values["kind"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(path, str) and isinstance(kind, str) and 0 < len(path) <= LONGEST:
            found[SavedPlace(path, kind[:LONGEST])] = None
    return list(found)[:MOST_PLACES]


def _plain(path: str) -> tuple[str, ...] | None:
    parts = PurePosixPath(path).parts
    return None if not parts or ".." in parts or path.startswith("/") or "\0" in path else parts

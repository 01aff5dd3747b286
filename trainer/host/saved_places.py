"""Where a program saves, by what it was seen to do or the inventory says, and where that is collected to.

A place is a path: absolute in the task's own file system, or relative to the run's directory, which is where
programs work. Each line of `saves/<task>.jsonl` in a run's directory tells of one (docs/contracts.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath

# In a run's directory, and in its folder on the controller.
NOTES, SAVED = "saves", "saved"
# Folders of the run's directory that are collected whatever is in them.
COLLECTED = ("checkpoints", "summaries", "output")
# Both are one folder, which stays beside the run's directory, in one of root's.
TEMPORARY, KEPT = ("tmp", "var/tmp"), ".tmp"
# What a SavedModel is made of: all that is collected of one that lies in the task's /tmp itself, or in the
# run's directory.
SAVED_MODEL = "SavedModel"
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "keras_metadata.pb")
SAVED_MODEL_FOLDERS = ("assets", "assets.extra", "variables")
MOST_PLACES = 200
LONGEST = 1000


@dataclass(frozen=True)
class SavedPlace:
    """A path that a program saves to, and the `kind` of what it saves there, "" where nobody saw it."""

    path: str
    kind: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is no path of the host, such as that of an object store."""
        return "://" in self.path

    @property
    def below_tmp(self) -> tuple[str, ...] | None:
        """Its parts below the task's /tmp, None where it is elsewhere."""
        for folder in TEMPORARY:
            if self.path == f"/{folder}":
                return self._root
            if self.path.startswith(f"/{folder}/"):
                return _plain(self.path.removeprefix(f"/{folder}/"))
        return None

    @property
    def below_run(self) -> tuple[str, ...] | None:
        """Its parts below the run's directory, None where it is elsewhere."""
        if self.path == ".":
            return self._root
        return None if self.path.startswith("/") or self.is_elsewhere else _plain(self.path)

    @property
    def _root(self) -> tuple[str, ...] | None:
        """Its parts where it is a folder of everybody's files: of these those of a SavedModel are known."""
        return () if self.kind == SAVED_MODEL else None

    @property
    def members(self) -> tuple[str, ...]:
        """What alone of the folder is collected; empty for all of it."""
        return (*SAVED_MODEL_FILES, *SAVED_MODEL_FOLDERS) if () in (self.below_tmp, self.below_run) else ()

    def kept_at(self, run_id: str, task: str) -> tuple[str, ...]:
        """Return its parts on the host, below the directory of all runs; none where it ends with the task."""
        if self.below_run is not None:
            return (run_id, *self.below_run)
        return () if self.below_tmp is None else (KEPT, run_id, task, *self.below_tmp)

    def brought_to(self, task: str) -> str:
        """Return where in the run's folder on the controller it comes to, "" where it is not collected."""
        if (parts := self.below_run) is not None:
            return "/".join(parts if parts[:1] and parts[0] in COLLECTED else (SAVED, task, *parts))
        return "" if (parts := self.below_tmp) is None else "/".join((SAVED, task, "tmp", *parts))


def noted_places(text: str | bytes) -> list[SavedPlace]:
    """Return the places that notes tell of, each once; what is no note counts as none.

    Whoever reads them believes neither that the program saved there nor that something is there.
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

"""Decides which files of a run a host may send to the controller, and where they go."""

import fcntl
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugins.module_utils.saved_places import NOTES, SAVED
from psfleet.carry.earlier_files import put
from trainer.contract.export import EXPORT, FILES
from trainer.contract.json_files import read_object
from trainer.contract.task_names import EVALUATOR_NAME

# The name of a file, no longer than file systems permit.
_FILE = "[A-Za-z0-9_][A-Za-z0-9_.=,+@-]{0,254}"
_PATH = rf"{_FILE}(?:/{_FILE}){{0,8}}"
# Where an export waits in the run's folder until the controller has checked it.
INCOMING = ".export"
_FOLDERS_OF_OTHERS = ("events", "logs", "devices", "summaries")
_OTHERS = "other_hosts"
_OWNERS = "collected.json"
_NO_NAME = re.compile(r"^\.+|[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class AllowedNames:
    """The names of files that a host may send, as patterns of whole paths in the run's folder.

    `own` files are only this host's. `shared` names may be used by another host, too. Names in `beside`
    belong to the lead, so this host's files go to other_hosts/<host>/. With None, no names are shared, or go
    beside.
    """

    own: re.Pattern[str]
    shared: re.Pattern[str] | None = None
    beside: re.Pattern[str] | None = None


def allowed_names(tasks: Iterable[Mapping[str, Any]], lead: str, *, program: bool) -> AllowedNames:
    """Return the names of files that a host with these tasks may send; without tasks, it may send none.

    They are its tasks' logs, records and reports. The host of the task `lead`, which saves the model, may
    also send checkpoints and the evaluator's files. `program` is True for a user's program: it chooses the
    names of its summaries, checkpoints and output, and each of its tasks may save.
    """
    names = [str(task["name"]) for task in tasks]
    own = "|".join(re.escape(name) for name in names) or "(?!)"
    # The evaluator runs on the host with the checkpoints.
    evaluated = f"{own}|{EVALUATOR_NAME}" if lead in names and not program else own
    files = [rf"logs/(?:{evaluated})\.out", rf"events/(?:{evaluated})\.jsonl", rf"devices/(?:{own})\.json"]
    if not program:
        files.append(f"summaries/(?:{evaluated})/{_PATH}")
    else:
        files += [rf"{NOTES}/(?:{own})\.jsonl", f"{SAVED}/(?:{own})/{_PATH}"]
    if lead in names:
        files.append(f"checkpoints/{_PATH if program else _FILE}")
    if not program or not names:
        return AllowedNames(re.compile("|".join(files)))
    beside = None if lead in names else re.compile(f"checkpoints/{_PATH}")
    return AllowedNames(re.compile("|".join(files)), re.compile(f"(?:summaries|output)/{_PATH}"), beside)


def wanted_folders(tasks: Iterable[Mapping[str, Any]], lead: str, *, program: bool) -> list[str]:
    """Return the folders that a host with these tasks is asked for; [] means all folders.

    It is [] for a program, and for the host of the task `lead`. Other hosts are not asked for checkpoints: a
    ps has the rows of tables there, which may be gigabytes, and the lead's host has the rows of the last
    checkpoint, too.
    """
    return [] if program or any(task["name"] == lead for task in tasks) else [*_FOLDERS_OF_OTHERS]


def export_names() -> AllowedNames:
    """Return the names of files that the lead's host may send when the model is exported."""
    return AllowedNames(re.compile(rf"{EXPORT}/(?:{FILES.pattern})"))


class Places:
    """The places in a run's `folder` for the files of one `host`.

    Several hosts may send a file of the same name, or one may send a file where another has a folder. Then
    the first of `hosts` gets the place, and the others' files go to other_hosts/<host>/<name>. collected.json
    records which host has each shared name.
    """

    def __init__(self, folder: Path, host: str, hosts: Sequence[str], allowed: AllowedNames) -> None:
        self.folder, self._host, self._hosts, self._allowed = folder, host, list(hosts), allowed
        self._owners: dict[str, str] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the run's folder; read collected.json and lock it during the block, then write it.

        Wait while the process of another host has the lock, because all hosts are collected at once. If this
        host has no shared names, collected.json is neither locked nor read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._allowed.shared is None:
            yield
            return
        with (self.folder / _OWNERS).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            owners = read_object(self.folder / _OWNERS)
            self._owners = {name: str(host) for name, host in owners.items()}
            try:
                yield
            finally:  # written files belong to this host, even after an error
                file.truncate(0)
                file.write(json.dumps(dict(sorted(self._owners.items())), indent=4) + "\n")

    def refusal(self, name: str) -> str:
        """Return why this host may not send a file of this name; "" if it may."""
        if any(kind and kind.fullmatch(name) for kind in vars(self._allowed).values()):
            return ""
        if not re.fullmatch(_PATH, name):
            allowed = "letters, digits and _.=,+@-, and no part of a path begins with a sign other than _"
            return f"it stays on the host: names have {allowed}, and are not too long or deep"
        return "it belongs to no task of this host"

    def put(self, fresh: Path, name: str) -> Path:
        """Move the file `fresh` to its place, and return the path of the place. Raises OSError.

        Call it in the block of `locked`, with a `name` that the host may send. Files of hosts that come later
        in `hosts` are moved to other_hosts/; if an earlier host has the place, `fresh` goes there. No file is
        lost.
        """
        shared, beside = (
            kind is not None and bool(kind.fullmatch(name))
            for kind in (self._allowed.shared, self._allowed.beside)
        )
        if beside or (shared and not self._make_way(name)):
            name = self._path_of_other(self._host, name)
        elif shared:
            self._owners[name] = self._host
        put(fresh, self.folder, name)
        return self.folder / name

    def _make_way(self, name: str) -> bool:
        """Move files of later hosts away from the place of a shared file; return True if it is free then.

        If a file of an earlier host is there, move nothing and return False. A file of an unknown host counts
        as this host's, and a file of this host does not keep the place from being free.
        """
        in_the_way = []
        for other_name in self._in_the_way(name):
            owner = self._owners.get(other_name, self._host)
            if self._rank(owner) < self._rank(self._host):
                return False
            if owner != self._host:
                in_the_way.append((other_name, owner))
        for other_name, owner in in_the_way:
            put(self.folder / other_name, self.folder, self._path_of_other(owner, other_name))
            del self._owners[other_name]
        return True

    def _in_the_way(self, name: str) -> Iterator[str]:
        """Yield the names of the files at the place of `name`, above it, or below it.

        A name is the path relative to the run's folder.
        """
        place = self.folder / name
        for path in (place, *place.parents[: name.count("/")]):
            if path.is_file():
                yield path.relative_to(self.folder).as_posix()
        for inside, _, files in os.walk(place):
            yield from ((Path(inside) / file).relative_to(self.folder).as_posix() for file in files)

    def _rank(self, host: str) -> int:
        return self._hosts.index(host) if host in self._hosts else len(self._hosts)

    def _path_of_other(self, host: str, name: str) -> str:
        return f"{_OTHERS}/{_NO_NAME.sub('_', host)}/{name}"

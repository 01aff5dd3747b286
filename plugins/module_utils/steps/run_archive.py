"""Pack what a run left on one host into one archive that the connecting user may fetch.

No link is followed, in no part of a path: what is there was written by the tasks.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..host.disk_space import readable
from ..host.safe_directory import opened, opened_below
from ..host.saved_places import NOTES, SAVED, SavedPlace, noted_places
from ..host.task_traces import NO_LINK, bytes_of
from ..step import Step

OPTIONS = {
    "run_id": {"required": True, "description": "The run."},
    "limit_megabytes": {"type": "int", "required": True, "description": "Of all files; the rest stays."},
    "folders": {"type": "list", "elements": "str", "default": [], "description": "Which; empty for all."},
    "only": {"default": "", "description": "What the names of files have in them that are packed."},
    "names": {
        "type": "list",
        "elements": "str",
        "default": [],
        "description": "Tasks of this host whose program saves elsewhere, too, as it was seen to.",
    },
    "collect": {
        "type": "list",
        "elements": "str",
        "default": [],
        "description": "What else they leave: below the `/tmp` of each, or in the run's directory.",
    },
    "paths": {"type": "dict", "required": True, "description": "The fact `cluster_paths`."},
    "owner": {"type": "int", "required": True, "description": "Number of the user that fetches it."},
}

RETURN = r"""
path:
  returned: always
  type: str
  description: The archive, readable by its owner alone. Remove it when it is fetched.
size: {returned: always, type: int, description: The bytes of the archive.}
files: {returned: always, type: int, description: How many files it holds.}
left_out: {returned: always, type: list, description: "What stays on the host or changed, with the reason."}
"""

# In the order of their worth: where not all fits, the last ones stay behind.
LOGS = "logs"
CHECKPOINTS = "checkpoints"
FOLDERS = ("events", LOGS, "devices", NOTES, CHECKPOINTS, SAVED, "summaries", "output")
# What TensorFlow calls a save that is not whole yet.
UNFINISHED = "tempstate"
# Its file that names the newest.
CHECKPOINT_STATE = "checkpoint"
DEPTH = 8
MOST_FILES = 10_000
MOST_NAMED = 20
MEGABYTE = 1_000_000
# Where an archive may be made, and its most megabytes. Where the disk is full, what is of most worth, the
# records, is packed into the host's memory.
PLACES = {"/var/tmp": 10**9, "/dev/shm": 64}  # noqa: S108 - mkstemp makes a name of its own


@dataclass
class AsLong:
    """Reads a file to the length that its archive has for it: zeros stand for what is `lacking` by now."""

    stream: IO[bytes]
    lacking: int = 0

    def read(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        block = b""
        with suppress(OSError):  # of what cannot be read nothing is known, either
            block = self.stream.read(size)
        self.lacking += size - len(block)
        return block.ljust(size, b"\0")


@dataclass
class Packer:
    """Adds regular files to an archive, up to `bytes_left`, and notes in `left_out` what it leaves behind.

    This runs as root in directories that the tasks' user owns, and a task does what visitors of its port
    say: so no link is followed, in no part of a path.
    """

    archive: tarfile.TarFile
    bytes_left: int
    only: str = ""
    files: int = 0
    left_out: list[str] = field(default_factory=list)

    def add_run(self, values: Mapping[str, Any]) -> None:
        """Add what a run left, or the `folders` of it; unfinished saves stay behind."""
        run_id, paths = values["run_id"], values["paths"]
        state = Path(paths["state_directory"])
        for name in values["folders"] or FOLDERS:
            if name == SAVED:
                self._add_saved(state, run_id, values["names"], values["collect"])
                continue
            of_logs = (Path(paths["log_directory"]), (run_id,))
            root, parts = of_logs if name == LOGS else (state, ("runs", run_id, name))
            with self._in(root, parts, name) as folder:
                if folder is not None:
                    self._add_folder(folder, name, DEPTH)

    @contextmanager
    def _in(self, root: Path, parts: Sequence[str], name: str) -> Iterator[int | None]:
        """Give a directory below that of root, None where there is none."""
        with ExitStack() as stack:
            folder = None
            try:
                folder = stack.enter_context(opened_below(stack.enter_context(opened(root)), parts))
            except FileNotFoundError:
                pass
            except (OSError, ValueError) as error:
                self.left_out.append(f"{name}: {error}")
            yield folder

    def _add_saved(self, state: Path, run_id: str, names: Sequence[str], collect: Sequence[str]) -> None:
        """Add what the tasks saved outside of the other folders, and what else is asked for, each once.

        Where that is the tasks tell: it is looked for in the run's directory and below their /tmp alone.
        """
        added: set[tuple[str, ...]] = set()
        for task in names:
            places = noted_places(bytes_of(state / "runs" / run_id / NOTES / f"{task}.jsonl"))
            # A folder comes before what is in it.
            for place in sorted([*places, *map(SavedPlace, collect)], key=lambda place: len(place.path)):
                name, parts = place.brought_to(task), place.parts_on_host(run_id, task)
                if not parts and not place.is_elsewhere:
                    self.left_out.append(f"{place.path}: {task} saved there, and it ended with the task")
                is_usual = not name.startswith(f"{SAVED}/")
                # Of a folder of which members alone are added, others may be in it.
                inside = place.members
                key = (*parts, "") if inside else parts
                if is_usual or added & {key[:count] for count in range(1, len(key) + 1)}:
                    continue
                added.add(key)
                with self._in(state, ("runs", *(parts if inside else parts[:-1])), name) as folder:
                    if folder is not None and inside:
                        self._add_members(folder, name, inside)
                    elif folder is not None:
                        self._add_named(folder, name)

    def _add_members(self, folder: int, name: str, members: Sequence[str]) -> None:
        for entry in sorted({*members} & {*os.listdir(folder)}):
            self._add_entry(folder, entry, f"{name}/{entry}", DEPTH - 2)

    def _add_named(self, folder: int, name: str) -> None:
        """Add what has this name in a directory, else the checkpoint of that name: files that begin so."""
        above, _, entry = name.rpartition("/")
        found = os.listdir(folder)
        if entry in found:
            self._add_entry(folder, entry, name, DEPTH - above.count("/"))
            return
        parts = [each for each in sorted(found) if each.startswith((f"{entry}-", f"{entry}."))]
        for each in [*parts, *({CHECKPOINT_STATE} & {*found} if parts else ())]:
            if UNFINISHED not in each:
                self._add_entry(folder, each, f"{above}/{each}", 0)

    def _add_folder(self, folder: int, name: str, depth: int) -> None:
        for entry in sorted(os.listdir(folder)):
            if not (UNFINISHED in entry and name.partition("/")[0] in {CHECKPOINTS, SAVED}):
                self._add_entry(folder, entry, f"{name}/{entry}", depth)

    def _add_entry(self, folder: int, entry: str, name: str, depth: int) -> None:
        try:
            descriptor = os.open(entry, NO_LINK, dir_fd=folder)
        except OSError:
            self.left_out.append(f"{name}: a link, or no file")
            return
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                if self.only in entry:
                    self._add_file(descriptor, name, found)
            elif stat.S_ISDIR(found.st_mode) and depth:
                self._add_folder(descriptor, name, depth - 1)
            else:
                self.left_out.append(f"{name}: no file, or deeper than {DEPTH} folders")
        finally:
            os.close(descriptor)

    def _add_file(self, descriptor: int, name: str, found: os.stat_result) -> None:
        if self.files >= MOST_FILES:
            self.left_out.append(f"{name}: beyond the {MOST_FILES} files that are collected of a host")
            return
        if found.st_size > self.bytes_left:
            self.left_out.append(f"{name}: {readable(found.st_size)}, beyond what is collected of a host")
            return
        member = tarfile.TarInfo(name)
        member.size, member.mtime = found.st_size, int(found.st_mtime)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = AsLong(stream)
            self.archive.addfile(member, content)  # type: ignore[arg-type]
        if content.lacking:
            zeros = f"zeros stand for {readable(content.lacking)} of it"
            self.left_out.append(f"{name}: changed while it was read: {zeros}")
        self.bytes_left -= found.st_size
        self.files += 1


def run(step: Step) -> None:
    """Take the step."""
    values = step.params
    if step.check_mode:
        step.exit_json(changed=False, path="", size=0, files=0, left_out=[])
    full: list[str] = []
    tried = (packed_in(directory, most, values, full) for directory, most in PLACES.items())
    archive = next(filter(None, tried), None)
    if archive is None:
        step.fail_json(msg=f"what the run left could not be packed: {'; '.join(full)}")
        return
    path, packer = archive
    if full:
        step.warn(f"{'; '.join(full)}: packed in {Path(path).parent} instead, its records before all else")
    os.chown(path, values["owner"], -1)
    step.exit_json(
        changed=False,
        path=path,
        size=os.stat(path).st_size,  # noqa: PTH116 - a string from mkstemp
        files=packer.files,
        left_out=shortened(packer.left_out),
    )


def packed_in(
    directory: str, most: int, values: Mapping[str, Any], full: list[str]
) -> tuple[str, Packer] | None:
    """Return the path of an archive in a directory and what packed it; or add to `full` why there is none."""
    path = ""
    try:
        handle, path = tempfile.mkstemp(prefix="psfleet-", suffix=".tar.gz", dir=directory)
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
            packer = Packer(tar, min(most, values["limit_megabytes"]) * MEGABYTE, values["only"])
            packer.add_run(values)
    except OSError as error:
        if path:
            os.unlink(path)  # noqa: PTH108 - a string from mkstemp
        free = 0
        with suppress(OSError):
            free = shutil.disk_usage(directory).free
        full.append(f"{directory} has {readable(free)} free ({error.strerror})")
        return None
    return path, packer


def shortened(names: Sequence[str]) -> list[str]:
    """Return the first twenty, printable, and how many more there are."""
    shown = [repr(name)[1:-1] for name in names[:MOST_NAMED]]
    return shown if len(names) <= MOST_NAMED else [*shown, f"and {len(names) - MOST_NAMED} more"]

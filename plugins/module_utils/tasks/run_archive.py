"""Packs the files of a run on one host into one archive that the connecting user may fetch.

No link is followed in any part of a path, because tasks wrote these files.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..host.safe_directory import opened, opened_below
from ..host.task_traces import NO_LINK, bytes_of
from ..host.wording import readable
from ..saved_places import NOTES, SAVED, SavedPlace, noted_places

# The folders of a run, the most valuable first: if not everything fits, the last folders stay on the host.
LOGS = "logs"
CHECKPOINTS = "checkpoints"
FOLDERS = ("events", LOGS, "devices", NOTES, CHECKPOINTS, SAVED, "summaries", "output")
# TensorFlow's name for an incomplete save.
UNFINISHED = "tempstate"
# TensorFlow's file that names the newest checkpoint.
CHECKPOINT_STATE = "checkpoint"
DEPTH = 8
MOST_FILES = 10_000
MOST_NAMED = 20
MEGABYTE = 1_000_000
# {directory for an archive: its most megabytes there}. If the disk is full, the most valuable files, the
# records, are packed in the host's memory.
PLACES = {"/var/tmp": 10**9, "/dev/shm": 64}  # noqa: S108 - mkstemp makes a name of its own


@dataclass
class PaddedFile:
    """A file that is read up to the length that its archive states.

    If the file has become shorter or unreadable meanwhile, zeros replace the `lacking` bytes, which are
    counted.
    """

    stream: IO[bytes]
    lacking: int = 0

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes; zeros replace unreadable bytes, which `lacking` counts."""
        block = b""
        with suppress(OSError):  # unreadable bytes count as lacking
            block = self.stream.read(size)
        self.lacking += size - len(block)
        return block.ljust(size, b"\0")


@dataclass
class Packer:
    """Adds regular files to an archive, up to `bytes_left`, and lists all other files in `left_out`.

    It runs as root in directories of the tasks' user, and a task does whatever clients of its port request.
    So no link is followed in any part of a path.

    - `only`: a text that the names of files must contain, "" for all files.
    - `limit_of`: the variable or the place that sets the limit, for messages.
    - `files`: the number of files in the archive so far.
    - `left_out`: "name: reason" for each file that is not in the archive, or not as it was.
    """

    archive: tarfile.TarFile
    bytes_left: int
    only: str = ""
    limit_of: str = ""
    files: int = 0
    left_out: list[str] = field(default_factory=list)
    # {(device, inode): first name} of files with several names; checkpoints share files with rows of tables.
    shared: dict[tuple[int, int], str] = field(default_factory=dict)

    def add_run(self, values: Mapping[str, Any]) -> None:
        """Add the files of a run, without incomplete saves; `values` are the arguments of `host_runs`.

        Only the folders in its `folders` are added; if this is empty, all FOLDERS.
        """
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
        """Yield a descriptor of the directory `root`/`parts`; None if it does not exist. No link is followed.

        `root` belongs to root. If the directory cannot be opened, yield None, and add the `name` and the
        error to `left_out`.
        """
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
        """Add what the tasks in `names` saved elsewhere, and the paths in `collect`, each once.

        Elsewhere means outside of checkpoints, summaries and output. The tasks record where they save, but
        files are taken only from the run's directory and from the tasks' /tmp; other paths are in `left_out`,
        except object stores.
        """
        added: set[tuple[str, ...]] = set()
        for task in names:
            places = noted_places(bytes_of(state / "runs" / run_id / NOTES / f"{task}.jsonl"))
            # A folder comes before its content.
            for place in sorted([*places, *map(SavedPlace, collect)], key=lambda place: len(place.path)):
                name, parts = place.path_on_controller(task), place.parts_on_host(run_id, task)
                if not parts and not place.is_elsewhere:
                    self.left_out.append(
                        f"{place.path}: {task} saved there, and it was deleted when the task ended"
                    )
                is_usual = not name.startswith(f"{SAVED}/")
                # If only some members of a folder are added, other places may lie in it, too.
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
        """Add the last part of `name`, a file or folder in the directory `folder`, under the name `name`.

        If it does not exist, add the checkpoint whose files begin with it; if there is none, add nothing.
        """
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
        has_saves = name.partition("/")[0] in {CHECKPOINTS, SAVED}
        for entry in sorted(os.listdir(folder), key=_newest_first if has_saves else None):
            if not (UNFINISHED in entry and has_saves):
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
            self.left_out.append(f"{name}: above the limit of {MOST_FILES} files from one host")
            return
        member = tarfile.TarInfo(name)
        if twin := self.shared.get((found.st_dev, found.st_ino)):
            member.type, member.linkname = tarfile.LNKTYPE, twin
            self.archive.addfile(member)
            self.files += 1
            return
        if found.st_size > self.bytes_left:
            self.left_out.append(
                f"{name}: {readable(found.st_size)}, above the limit for one host, {self.limit_of}"
            )
            return
        member.size, member.mtime = found.st_size, int(found.st_mtime)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = PaddedFile(stream)
            self.archive.addfile(member, content)  # type: ignore[arg-type]
        if content.lacking:
            zeros = f"zeros stand for {readable(content.lacking)} of it"
            self.left_out.append(f"{name}: changed while it was read: {zeros}")
        self.bytes_left -= found.st_size
        self.files += 1
        if found.st_nlink > 1:
            self.shared[found.st_dev, found.st_ino] = name


def _newest_first(entry: str) -> tuple[float, str]:
    """Return a sort key by the number in "model.ckpt-1200.index", the largest number first, others last.

    So the limit of bytes leaves out old checkpoints.
    """
    numbered = re.search(r"-([0-9]{1,18})[.]", entry)
    return -int(numbered[1]) if numbered else -math.inf, entry


def pack_run(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Pack the files of a run; return (answer of the module `host_runs`, texts).

    The texts are one for each place that had no room for the archive; [] if the first place had. `values` are
    the module's arguments. The answer has the archive's `path`, its `size` in bytes, the number of its
    `files`, and what is `left_out` ("name: reason"). Raises ValueError if the archive fits nowhere.
    """
    full: list[str] = []
    tried = (pack_into(directory, most, values, full) for directory, most in PLACES.items())
    archive = next(filter(None, tried), None)
    if archive is None:
        raise ValueError(f"the files of the run could not be packed: {'; '.join(full)}")
    path, packer = archive
    os.chown(path, values["owner"], -1)
    size = os.stat(path).st_size  # noqa: PTH116 - a string from mkstemp
    left_out = shorten_names(packer.left_out)
    return {"path": path, "size": size, "files": packer.files, "left_out": left_out}, full


def pack_into(
    directory: str, most: int, values: Mapping[str, Any], full: list[str]
) -> tuple[str, Packer] | None:
    """Pack the files of a run into an archive in `directory`; return (its path, its packer).

    The files have at most `most` megabytes, and at most the module's limit. If packing fails, add the reason
    to `full`, leave no archive, and return None.
    """
    path = ""
    try:
        handle, path = tempfile.mkstemp(prefix="psfleet-", suffix=".tar.gz", dir=directory)
        with os.fdopen(handle, "wb") as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
            limit = values["limit_megabytes"]
            limit_of = values["limit_of"] if limit <= most else f"{most} MB in {directory}"
            packer = Packer(tar, min(most, limit) * MEGABYTE, values["only"], limit_of)
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


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return the first MOST_NAMED texts, special characters escaped, and "and N more" if there are more."""
    shown = [repr(name)[1:-1] for name in names[:MOST_NAMED]]
    return shown if len(names) <= MOST_NAMED else [*shown, f"and {len(names) - MOST_NAMED} more"]

"""Carries a program's checkpoints from the chief to the evaluator, if the two are on different hosts.

The launcher of chief0 sends each new checkpoint to the launcher of evaluator0, which listens at its port in
the plan; the fence opens that port only to the hosts of the plan. A connection carries one checkpoint: a line
of JSON with the names and sizes of its files, the answer "send", the files' bytes, and the answer "kept". The
evaluator checks names and sizes before it writes anything.
"""

import contextlib
import io
import json
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trainer.host.safe_directory import NEW, opened, opened_below, parts_of
from trainer.process.cluster import split_address
from trainer.process.console import say

STATE = "checkpoint"
# The evaluator keeps as many checkpoints of a folder as TensorFlow's savers do.
MOST_KEPT = 5
MOST_FILES = 1000
MOST_FOLDERS = 16
MOST_DEPTH = 4
# The evaluator refuses a checkpoint that would leave less room than this on its disk.
LEAST_ROOM = 256 << 20
_HEADER_BYTES = 256 * 1024
_STATE_BYTES = 64 * 1024
_BLOCK_BYTES = 1 << 20
_SILENT_SECONDS = 60.0
_POLL_SECONDS = 2.0
_LATEST = re.compile(rb'^model_checkpoint_path: "((?:[^"\\\n]|\\.)*)"', re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=,+@-]{0,199}")
_PART = re.compile(r"index|meta|data-[0-9]{5}-of-[0-9]{5}")
# The folders of a run's directory in which psfleet itself writes.
_OF_PSFLEET = {"events", "logs", "endings", "devices"}


class RefusedError(ValueError):
    """What a checkpoint's sender asks for is not allowed; the text says why."""


@dataclass(frozen=True)
class Places:
    """The directories below which a run's checkpoints may lie, {place: absolute path}, and the run's id."""

    roots: Mapping[str, Path]
    run_id: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its place, its folder there ("" for the place itself), its name, and its files' sizes.

    `files` is {part of the name after the dot: bytes}, such as {"index": 1234}.
    """

    place: str
    folder: str
    name: str
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The checkpoint's path in its place, for messages."""
        return "/".join(filter(None, [self.folder, self.name]))

    @property
    def megabytes(self) -> float:
        """The size of all files in megabytes."""
        return sum(self.files.values()) / 1e6

    def header(self, run_id: str) -> bytes:
        """Return the line that announces the checkpoint."""
        return json.dumps({"run_id": run_id, **vars(self), "files": dict(self.files)}).encode() + b"\n"

    @classmethod
    def announced(cls, header: bytes, places: Places) -> "Checkpoint":
        """Return the checkpoint that a line announces.

        Raises RefusedError, or ValueError for a folder outside of its place, if anything is not allowed.
        """
        try:
            asked = json.loads(header)
        except (ValueError, RecursionError) as error:
            raise RefusedError("it is announced by no line of JSON") from error
        asked = asked if isinstance(asked, dict) else {}
        place, folder, name, files = (asked.get(key) for key in ("place", "folder", "name", "files"))
        if asked.get("run_id") != places.run_id:
            raise RefusedError("it is of another run")
        if not (isinstance(place, str) and isinstance(folder, str) and isinstance(name, str)):
            raise RefusedError("its place, folder or name is missing")
        if place not in places.roots:
            raise RefusedError("its place is none of a task")
        parts = parts_of(folder) if folder else ()
        if len(parts) > MOST_DEPTH or not all(map(_NAME.fullmatch, (*parts, name))):
            raise RefusedError("its folder or name has other characters, or is too deep")
        if place == "run" and parts and parts[0] in _OF_PSFLEET:
            raise RefusedError("its folder is not a program's")
        if not isinstance(files, dict) or "index" not in files or len(files) > MOST_FILES:
            raise RefusedError("it has no index, or too many files")
        if not all(_PART.fullmatch(part) and type(size) is int and size >= 0 for part, size in files.items()):
            raise RefusedError("a file has another name or no size")
        return cls(place, folder, name, files)


def saved_checkpoints(places: Places, wanted: Sequence[str]) -> Iterator[Checkpoint]:
    """Yield the latest checkpoint of each folder with a file `checkpoint`, in the places `wanted`.

    A checkpoint whose files are not all there yet, or no longer, is left out. No link is followed.
    """
    left = MOST_FOLDERS
    for place in wanted:
        root = places.roots[place]
        for here, folders, files in os.walk(root):
            depth = len(Path(here).relative_to(root).parts)
            folders[:] = sorted(folders) if depth < MOST_DEPTH else []
            if depth == 0 and place == "run":
                folders[:] = [folder for folder in folders if folder not in _OF_PSFLEET]
            if STATE in files and left > 0:
                left -= 1
                with contextlib.suppress(OSError, ValueError):
                    yield _latest(place, root, Path(here))


def _latest(place: str, root: Path, folder: Path) -> Checkpoint:
    """Return the latest checkpoint of a folder. Raises ValueError or OSError if its index is not there."""
    with (folder / STATE).open("rb") as file:
        match = _LATEST.search(file.read(_STATE_BYTES))
    name = match[1].decode().rpartition("/")[2] if match else ""
    if not _NAME.fullmatch(name):
        raise ValueError(name)
    files = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            part = entry.name.removeprefix(f"{name}.")
            if part != entry.name and _PART.fullmatch(part) and entry.is_file(follow_symlinks=False):
                files[part] = entry.stat(follow_symlinks=False).st_size
    if "index" not in files:
        raise ValueError(name)
    relative = folder.relative_to(root).as_posix()
    return Checkpoint(place, "" if relative == "." else relative, name, files)


class Sender:
    """Sends each new checkpoint of the chief to the evaluator, in a thread, as long as this process lives."""

    def __init__(self, places: Places, address: str, wanted: Sequence[str]) -> None:
        """Begin to look for checkpoints in the places `wanted`; `address` is the evaluator's "host:port"."""
        self._places, self._target, self._wanted = places, split_address(address), wanted
        self._sent: dict[tuple[str, str], Checkpoint] = {}
        self._told = ""
        self._wake = threading.Event()
        threading.Thread(target=self._work, daemon=True).start()

    def hurry(self) -> None:
        """Look for new checkpoints at once: the program has ended."""
        self._wake.set()

    def _work(self) -> None:
        while True:
            try:
                for checkpoint in saved_checkpoints(self._places, self._wanted):
                    key = (checkpoint.place, checkpoint.folder)
                    if self._sent.get(key) != checkpoint:
                        began = time.monotonic()
                        self._send(checkpoint)
                        self._sent[key], self._told = checkpoint, ""
                        took = f"{checkpoint.megabytes:.1f} MB, {time.monotonic() - began:.1f} s"
                        say(f"Sent checkpoint {checkpoint.shown} to the evaluator ({took}).")
            except (OSError, ValueError) as error:
                # The chief may have removed it meanwhile, or the evaluator does not listen yet.
                if str(error) != self._told:
                    say(f"A checkpoint was not sent to the evaluator, and is tried again: {error}")
                self._told = str(error)
            self._wake.wait(_POLL_SECONDS)
            self._wake.clear()

    def _send(self, checkpoint: Checkpoint) -> None:
        """Send a checkpoint. Raises OSError, also if the evaluator refuses it, or if a file has changed."""
        folder = self._places.roots[checkpoint.place] / checkpoint.folder
        with contextlib.ExitStack() as stack:
            opened_files = {
                part: stack.enter_context((folder / f"{checkpoint.name}.{part}").open("rb"))
                for part in checkpoint.files
            }
            line = stack.enter_context(socket.create_connection(self._target, _SILENT_SECONDS))
            answers = stack.enter_context(line.makefile("rb"))
            line.sendall(checkpoint.header(self._places.run_id))
            _expect(answers, b"send\n")
            for part, size in checkpoint.files.items():
                if line.sendfile(opened_files[part], count=size) != size:
                    raise OSError(f"{checkpoint.name}.{part} became shorter")
            _expect(answers, b"kept\n")


def _expect(answers: IO[bytes], expected: bytes) -> None:
    answer = answers.readline(1000)
    if answer != expected:
        raise OSError(answer.decode(errors="replace").strip() or "the evaluator broke off")


class Receiver:
    """Receives the chief's checkpoints at a port, in a thread, as long as this process lives."""

    def __init__(self, places: Places, port: int, chief: str) -> None:
        """Listen at `port` for the host `chief`, a name or an IP. Raises OSError if the port is in use."""
        self._places, self._chief = places, chief
        self._kept: dict[tuple[str, str], list[Checkpoint]] = {}
        self._told = ""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        self._server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
        threading.Thread(target=self._work, daemon=True).start()

    def discard(self) -> None:
        """Remove the received checkpoints, which the chief's host has, too; the program must have ended."""
        for (place, name), kept in self._kept.items():
            parts = parts_of(name) if name else ()
            with (
                # What the program has replaced, such as a folder by a link, stays.
                contextlib.suppress(OSError, ValueError),
                opened(self._places.roots[place]) as root,
                opened_below(root, parts) as folder,
            ):
                for checkpoint in kept:
                    _remove_files(folder, checkpoint)
                _remove(folder, STATE)

    def _work(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                line, (peer, *_) = self._server.accept()
                with line:
                    line.settimeout(_SILENT_SECONDS)
                    self._answer(line, peer)

    def _answer(self, line: socket.socket, peer: str) -> None:
        """Receive one checkpoint; a connection without a header is a probe of the port."""
        with line.makefile("rb") as incoming:
            header = incoming.readline(_HEADER_BYTES)
            if not header:
                return
            try:
                if not self._is_chief(peer):
                    raise RefusedError(f"{peer} is not the chief's host")
                checkpoint = Checkpoint.announced(header, self._places)
                self._receive(checkpoint, line, incoming)
            except (OSError, ValueError) as error:
                why = str(error).replace("\n", " ")[:300]
                if why != self._told:  # the chief tries again and again
                    say(f"A checkpoint from {peer} was refused: {why}")
                self._told = why
                line.sendall(f"refused: {why}\n".encode())
                return
        self._told = ""
        say(f"Received checkpoint {checkpoint.shown} ({checkpoint.megabytes:.1f} MB).")

    def _is_chief(self, peer: str) -> bool:
        """Return whether an IP is one of the chief's host; by name or address, as this host resolves them."""
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(self._chief, None)}
        return peer.removeprefix("::ffff:").partition("%")[0] in {ip.partition("%")[0] for ip in found}

    def _receive(self, checkpoint: Checkpoint, line: socket.socket, incoming: IO[bytes]) -> None:
        """Receive the files, then write the state file, and remove the oldest checkpoint beyond MOST_KEPT.

        Raises OSError or ValueError, after which the folder is as before.
        """
        key = (checkpoint.place, checkpoint.folder)
        if key not in self._kept and len(self._kept) >= MOST_FOLDERS:
            raise RefusedError(f"more than {MOST_FOLDERS} folders with checkpoints")
        root = self._places.roots[checkpoint.place]
        size = sum(checkpoint.files.values())
        if shutil.disk_usage(root).free < size + LEAST_ROOM:
            raise RefusedError(f"no room for {size} bytes on the evaluator's disk")
        parts = parts_of(checkpoint.folder) if checkpoint.folder else ()
        with opened(root) as at_root, opened_below(at_root, parts, make=True) as folder:
            line.sendall(b"send\n")
            fresh = {part: f".{secrets.token_hex(8)}.{part}" for part in checkpoint.files}
            try:
                for part, name in fresh.items():
                    _copy(incoming, folder, name, checkpoint.files[part])
                for part, name in fresh.items():
                    os.replace(name, f"{checkpoint.name}.{part}", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                for name in fresh.values():
                    _remove(folder, name)
                raise
            kept = self._kept.setdefault(key, [])
            kept[:] = [*(each for each in kept if each.name != checkpoint.name), checkpoint][-MOST_KEPT - 1 :]
            gone = [kept.pop(0)] if len(kept) > MOST_KEPT else []
            _write_state(folder, [each.name for each in kept])
            for each in gone:
                _remove_files(folder, each)
        line.sendall(b"kept\n")


def _copy(incoming: IO[bytes], folder: int, name: str, size: int) -> None:
    """Write the next `size` bytes to a new file in a folder (a descriptor). Raises OSError if fewer come."""
    with os.fdopen(os.open(name, NEW, 0o640, dir_fd=folder), "wb") as file:
        while size:
            block = incoming.read(min(size, _BLOCK_BYTES))
            if not block:
                raise OSError("the connection broke off")
            file.write(block)
            size -= len(block)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _remove_files(folder: int, checkpoint: Checkpoint) -> None:
    for part in checkpoint.files:
        _remove(folder, f"{checkpoint.name}.{part}")


def _write_state(folder: int, names: Sequence[str]) -> None:
    """Write or replace the file `checkpoint` of a folder (a descriptor) at once; the last name is the latest.

    Raises OSError. The names are relative. safe_directory.write sets the owner, which the task's sandbox
    forbids.
    """
    every = "".join(f'all_model_checkpoint_paths: "{name}"\n' for name in names)
    content = f'model_checkpoint_path: "{names[-1]}"\n{every}'.encode()
    fresh = f".{secrets.token_hex(8)}.{STATE}"
    _copy(io.BytesIO(content), folder, fresh, len(content))
    os.replace(fresh, STATE, src_dir_fd=folder, dst_dir_fd=folder)

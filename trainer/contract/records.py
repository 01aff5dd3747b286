"""The event records of a task: writing them, and reading them.

A record is a JSON object on one line. Each line is written by a single `write` to a file that is open for
appending. So a killed task leaves whole lines and, at most, one cut line. Numbers that are not finite are
`null`.
"""

import json
import math
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from .json_files import finite
from .json_values import TEXT
from .record_fields import COMMON, VERSION, WRITES, record_problems

MOST_COMPLAINTS = 100
# Room for some 10,000 records, which are hours of a worker's steps.
_MOST_WAITING_BYTES = 4 << 20
# The values of `reason` in a `finished` record that say that the task was stopped, and why.
STOPPED_BY_HAND, STOPPED_BY_HOST = "stopped", "host went down"
STOPPED_REASONS = frozenset({STOPPED_BY_HAND, STOPPED_BY_HOST})
# The values of `reason` in a worker's `finished` record that say that the worker stayed to the end. MET says
# that an evaluation ended the run before its last step.
MET = "stop_when met"
GOOD_ENDINGS = frozenset({"last step", "run over", MET})
_NONCE_BITS = 48  # a double holds such a number exactly, and some JSON readers have only doubles


@dataclass(frozen=True)
class TaskIdentity:
    """The task and the run that records belong to.

    `plan_hash` and `release` are "" if the task was started by hand. `program` is the hash of the program's
    code; it is "" for built-in models.
    """

    run_id: str
    job: str
    index: int
    plan_hash: str = ""
    release: str = ""
    program: str = ""

    @property
    def task(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"


@dataclass(frozen=True, slots=True)
class Record:
    """One event of one task.

    `wall` is in Unix seconds, `monotonic` in seconds of the monotonic clock of the task's host. `fields` are
    the fields that are not common to all events.
    """

    event: str
    run_id: str
    job: str
    index: int
    host: str
    pid: int
    plan_hash: str
    release: str
    wall: float
    monotonic: float
    fields: Mapping[str, object]

    @property
    def task(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    def number(self, name: str) -> float:
        """Return a numeric field as float; nan if the field is missing or has another type."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    def integer(self, name: str) -> int:
        """Return an integer field. Raises KeyError if the field is missing or is no integer."""
        value = self.fields[name]
        if not isinstance(value, int) or isinstance(value, bool):
            raise KeyError(name)
        return value

    def text(self, name: str) -> str:
        """Return a text field; "" if it is missing. A field of another type is converted to a text."""
        return str(self.fields.get(name, ""))

    def integers(self, name: str) -> dict[str, int]:
        """Return a field that is {name: integer}; {} if the field is missing or is no mapping."""
        value = self.fields.get(name)
        return dict(value) if isinstance(value, Mapping) else {}


def events_file(run_directory: Path, job: str, index: int) -> Path:
    """Return the path of the file with a task's records, `run_directory`/events/worker0.jsonl for example."""
    return run_directory / "events" / f"{job}{index}.jsonl"


def open_records(
    run_directory: Path | None, identity: TaskIdentity, complain: Callable[[str], object]
) -> "RecordWriter":
    """Return a writer of a task's records in its run directory; without one (None), it writes nothing.

    If the file cannot be opened, call `complain` with the reason, and return a writer that writes nothing.
    """
    path = events_file(run_directory, identity.job, identity.index) if run_directory else None
    try:
        return RecordWriter(path, identity)
    except OSError as error:
        complain(f"no records are kept: {path}: {error.strerror}")
        return RecordWriter(None, identity)


def draw_nonce() -> int:
    """Return a random odd number of 48 bits; two processes do not draw the same, and it is never 0."""
    return secrets.randbits(_NONCE_BITS) | 1


def read_records(path: Path) -> tuple[list[Record], list[str]]:
    """Return (the valid records in a file, a complaint in words for each line that is not valid).

    Both are in the order of the lines; empty lines are ignored. After 100 complaints, one more stands for the
    rest of the file, which is not read. A file that cannot be opened gives no record and one complaint.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        return [], [f"{path}: {error.strerror}"]
    return records_in(content, str(path))


def records_in(content: bytes, name: str) -> tuple[list[Record], list[str]]:
    """Return (records, complaints), as `read_records` does, for a file's content.

    `name` is the file's name in the complaints.
    """
    lines = content.split(b"\n")
    records: list[Record] = []
    complaints: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(complaints) == MOST_COMPLAINTS:
            complaints.append(f"{name}, from line {number} on: too much of it is damaged")
            break
        try:
            records.append(_record(line))
        except ValueError as problem:
            cut = ", and the line does not end: cut short" if number == len(lines) else ""
            complaints.append(f"{name}, line {number}: {problem}{cut}")
    return records, complaints


class RecordWriter:
    """Appends the records of one task; several threads may share it.

    If writing fails, as on a full disk, training goes on: records wait in memory, and are written with a
    later record. If more than 4 MiB wait, further records are lost, and a line is printed.
    """

    def __init__(self, path: Path | None, identity: TaskIdentity) -> None:
        """Open `path` for appending and create its folders; with None, nothing is written. Raises OSError."""
        self._identity = {**asdict(identity), "host": platform.node(), "pid": os.getpid()}
        if not identity.program:
            del self._identity["program"]
        self._path = path
        self._descriptor: int | None = None
        self._waiting = b""
        self._writing = Lock()
        self._is_told = self._are_lost = False
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._descriptor).st_size
        if size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n":
            self._waiting = b"\n"

    def write(self, event: str, fields: Mapping[str, object] | None = None) -> None:
        """Append a record, or keep it in memory if that fails.

        `fields` are the event's own fields (None: none); the common fields are added. Numbers that are not
        finite are written as null. Raises ValueError if the record is not valid, even if the writer writes
        nothing.
        """
        values: dict[str, object] = {
            "v": VERSION,
            "event": event,
            **self._identity,
            "wall": round(time.time(), 6),
            "monotonic": round(time.monotonic(), 6),
        }
        values |= {name: finite(value) for name, value in (fields or {}).items()}
        problems = record_problems(values)
        if problems:
            raise ValueError(f"record {event!r}: {'; '.join(problems)}")
        if self._descriptor is None:
            return
        # A program's settings may be any objects; objects that JSON does not have are written as their texts.
        line = json.dumps(values, separators=(",", ":"), allow_nan=False, default=str).encode() + b"\n"
        with self._writing:
            if len(self._waiting) + len(line) <= _MOST_WAITING_BYTES:
                self._waiting += line
            elif not self._are_lost:
                self._are_lost = True
                sys.stderr.write(f"records are being lost: {self._path}: too many wait for space\n")
            self._write_waiting(self._descriptor)

    def write_started(
        self, settings: Mapping[str, object], tensorflow: str, address: str, nonce: int = 0
    ) -> None:
        """Append the `started` record, the first of a process; with a `nonce` of 0, a nonce is drawn.

        `tensorflow` is TensorFlow's version, `address` is where the task listens ("" if it does not listen).
        """
        versions = {"tensorflow": tensorflow, "python": platform.python_version()}
        own = {"nonce": nonce or draw_nonce(), "settings": settings, "address": address, "writes": WRITES}
        self.write("started", {**own, **versions})

    def _write_waiting(self, descriptor: int) -> None:
        """Write the waiting records, as far as there is space; a line that was cut is continued later."""
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(descriptor, self._waiting) :]
        except OSError as error:
            if not self._is_told:
                sys.stderr.write(f"records wait to be written: {self._path}: {error.strerror}\n")
            self._is_told = True
            return
        if self._is_told:
            sys.stderr.write(f"records are written again: {self._path}\n")
        self._is_told = self._are_lost = False


def _record(line: bytes) -> Record:
    """Return the record in a line. Raises ValueError, which says why the line is not valid."""
    try:
        values = json.loads(line.decode("utf-8"), parse_int=_int64)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    if problems := record_problems(values):
        raise ValueError("; ".join(problems))
    # Interned, so that names, and texts that are equal in many records, are in memory only once.
    values = {sys.intern(name): value for name, value in values.items()}
    common: dict[str, Any] = {name: values.pop(name) for name in COMMON}
    common |= {name: sys.intern(common[name]) for name, rule in COMMON.items() if rule is TEXT}
    common |= {"wall": float(common["wall"]), "monotonic": float(common["monotonic"])}
    del values["v"]
    return Record(**common, fields=values)


def _int64(digits: str) -> int:
    """Return the integer with these decimal digits. Raises ValueError if it needs more than 63 bits.

    With this bound, no later computation with it overflows a float.
    """
    number = int(digits)
    if number.bit_length() > 63:
        raise ValueError(f"an integer of {len(digits)} digits")
    return number

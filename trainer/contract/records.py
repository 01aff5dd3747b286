"""The event records of a task: writing them, reading them, and their schema (docs/contracts.md).

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

VERSION = 1
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

# The evaluator is no task of a run: it evaluates the final model, on the chief's host, after the run's end.
# The evaluator takes no part in the training, but writes records as tasks do.
EVALUATOR = "evaluator"
EVALUATOR_NAME = f"{EVALUATOR}0"


def _fields(text: str) -> dict[str, str]:
    """Return {name: kind} for a text "name:kind name:kind"; a kind is one of `_KINDS`."""
    return dict(field.split(":") for field in text.split())


COMMON = _fields(
    "event:str run_id:str job:str index:int host:str pid:int plan_hash:str release:str"
    " wall:seconds monotonic:seconds"
)
EVENTS = {
    "started": _fields("nonce:int settings:object tensorflow:str python:str address:str"),
    "peers_ready": _fields("ps_nonces:ints worker_nonces:ints waited_seconds:number global_step:int"),
    "initialised": _fields("global_step:int"),
    "restored": _fields("global_step:int checkpoint:str"),
    "ps_restored": _fields("global_step:int task:str checkpoint:str checkpoint_step:int fingerprint:str"),
    "trained": _fields("variables:ints"),
    "unseen": _fields("reason:str"),
    "step": _fields(
        "local_step:int steps:int global_step_before:int global_step_after:int loss:number loss_mean:number"
        " examples:int seconds:number staleness_mean:number staleness_max:int"
    ),
    "gradients": _fields("global_step:int losses:numbers norms:numbers fits:numbers"),
    "tables": _fields("global_step:int samples:int examples:int tables:object"),
    "resources": _fields("seconds:seconds cpu_seconds:seconds cores:int samples:int active_samples:int"),
    "checkpointed": _fields("global_step:int path:str seconds:number"),
    "checkpoint_failed": _fields("global_step:int reason:str"),
    "checkpoint_damaged": _fields("global_step:int path:str reason:str"),
    "checkpoint_copied": _fields("global_step:int task:str seconds:number"),
    "checkpoint_copy_failed": _fields("global_step:int task:str reason:str"),
    "checkpoint_fetched": _fields("global_step:int task:str seconds:number"),
    "evaluated": _fields("global_step:int metrics:numbers"),
    "recovering": _fields("reason:str"),
    "finished": _fields("reason:str"),
    "failed": _fields("class:str reason:str"),
}
_FINISHED_WORKER = _fields("local_step:int global_step:int seconds:number examples:int loss:number")
_FINISHED_CHIEF = _fields("contributions:ints last_step:int")
_EVALUATED_APART = _fields("fingerprint:str examples:int")
# Optional fields of events.
OPTIONAL = {
    "started": _fields("writes:str"),
    "peers_ready": _fields(
        "server_nonce:int ps_own_nonces:ints global_step_on:str variables:ints counters:ints doubts:str"
    ),
    "trained": _fields("computed_on:str"),
    "evaluated": _fields("sample_outputs:numbers"),
    # A program's tasks may omit fields that a built-in model's tasks must have; the kinds are the same.
    "finished": _fields(
        "fingerprint:str fingerprint_step:int sample_outputs:numbers gradients_seen:int gradients_of_zero:int"
        " train_examples:int"
    )
    | _FINISHED_WORKER
    | _FINISHED_CHIEF,
    "initialised": _fields("ps_parameters:object"),
    "restored": _fields("ps_parameters:object fingerprint:str contributions:ints"),
    "resources": _fields("core_wait_seconds:seconds"),
    "checkpointed": _fields(
        "fingerprint:str stopped_seconds:seconds rows_written:int deltas:int ps_fingerprints:object"
    ),
    "step": _fields(
        "staleness_histogram:counts own_steps_behind:int waiting_seconds:seconds loss:number loss_mean:number"
        " unplaced:int batches:int trained:int"
    ),
}
# What this release can record: the names of events, and optional fields as `event.field`. A verdict does not
# require of a run what the run's release could not record.
WRITES = " ".join([*EVENTS, *(f"{event}.{field}" for event, fields in OPTIONAL.items() for field in fields)])
# Fields that a program's records may lack, because the program does not know them or does not record them.
# Such records have the field `program`, the hash of the program's code.
_NOT_OF_PROGRAMS = {
    "step": {"staleness_mean", "staleness_max", "loss", "loss_mean"},
    "finished": {*_FINISHED_WORKER, *_FINISHED_CHIEF},
}


@dataclass(frozen=True)
class TaskIdentity:
    """The task and the run that records belong to.

    `plan_hash` and `release` are "" if the task was started by hand. `program` is the hash of the program
    that the task runs; it is "" for built-in models.
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
        """Return a numeric field; nan if it is missing or was not finite."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) else math.nan

    def integer(self, name: str) -> int:
        """Return an integer field. Raises KeyError if the field is missing or is no integer."""
        value = self.fields[name]
        if not _is_integer(value):
            raise KeyError(name)
        return int(str(value))

    def text(self, name: str) -> str:
        """Return a text field; "" if it is missing."""
        return str(self.fields.get(name, ""))

    def integers(self, name: str) -> dict[str, int]:
        """Return a field that maps names to integers; {} if it is missing."""
        value = self.fields.get(name)
        return dict(value) if isinstance(value, Mapping) else {}


def events_file(run_directory: Path, job: str, index: int) -> Path:
    """Return the path of the file with a task's records, `run_directory`/events/worker0.jsonl for example."""
    return run_directory / "events" / f"{job}{index}.jsonl"


def open_records(
    run_directory: Path | None, identity: TaskIdentity, complain: Callable[[str], object]
) -> "RecordWriter":
    """Return a writer of a task's records in its run directory.

    If that fails, call `complain` with the reason, and return a writer that writes nothing.
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


def required_fields(event: str, job: str, index: int, *, program: bool = False) -> dict[str, str]:
    """Return {name: kind} of the fields that an event must have beside the common ones; {} if unknown.

    `job` and `index` are the task's. `program` says that the record is a program's, which may lack some
    fields.
    """
    fields = dict(EVENTS.get(event, {}))
    if event == "finished" and job == "worker":
        fields |= _FINISHED_WORKER
        if index == 0:
            fields |= _FINISHED_CHIEF
    if event == "evaluated" and job == EVALUATOR:
        fields |= _EVALUATED_APART
    unknown = _NOT_OF_PROGRAMS.get(event, set()) if program else set()
    return {name: kind for name, kind in fields.items() if name not in unknown}


def schema_problems(values: Mapping[str, object]) -> list[str]:
    """Return why an object is not a record of this version, in words; [] if it is a valid record."""
    if not _is_integer(values.get("v")) or values["v"] != VERSION:
        return [f"v is {values.get('v')!r}, expected {VERSION}"]
    if problems := _kind_problems(values, COMMON):
        return problems
    event, job, index = str(values["event"]), str(values["job"]), int(str(values["index"]))
    if event not in EVENTS:
        return [f"event {event!r} is not one of {', '.join(EVENTS)}"]
    expected = required_fields(event, job, index, program="program" in values)
    expected |= {name: kind for name, kind in OPTIONAL.get(event, {}).items() if name in values}
    return [f"{event}: {problem}" for problem in _kind_problems(values, expected)]


def read_records(path: Path) -> tuple[list[Record], list[str]]:
    """Return the valid records in a file, and a complaint, in words, for each other line.

    No content of the file makes this raise. A file that cannot be opened gives a complaint, too.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        return [], [f"{path}: {error.strerror}"]
    return records_in(content, str(path))


def records_in(content: bytes, name: str) -> tuple[list[Record], list[str]]:
    """Return records and complaints, as `read_records` does, given a file's content and its name."""
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

    If writing fails, as on a full disk, training goes on: records wait in memory, up to 4 MiB, and are
    written with a later record.
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

        Raises ValueError if the record does not match the schema.
        """
        values: dict[str, object] = {
            "v": VERSION,
            "event": event,
            **self._identity,
            "wall": round(time.time(), 6),
            "monotonic": round(time.monotonic(), 6),
        }
        values |= {name: finite(value) for name, value in (fields or {}).items()}
        problems = schema_problems(values)
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
        """Append the first record of a process; with a `nonce` of 0, draw a nonce.

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
    if problems := schema_problems(values):
        raise ValueError("; ".join(problems))
    # Interned, so that names, and texts that are equal in many records, are in memory only once.
    values = {sys.intern(name): value for name, value in values.items()}
    common: dict[str, Any] = {name: values.pop(name) for name in COMMON}
    common |= {name: sys.intern(common[name]) for name, kind in COMMON.items() if kind == "str"}
    common |= {"wall": float(common["wall"]), "monotonic": float(common["monotonic"])}
    del values["v"]
    return Record(**common, fields=values)


def _int64(digits: str) -> int:
    """Return the integer with these digits. Raises ValueError if it has more than 63 bits.

    With this bound, no later computation with it overflows a float.
    """
    number = int(digits)
    if number.bit_length() > 63:
        raise ValueError(f"an integer of {len(digits)} digits")
    return number


def _kind_problems(values: Mapping[str, object], kinds: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is {str(values[name])[:40]!r}, expected {kind}" if name in values else f"{name} is missing"
        for name, kind in kinds.items()
        if name not in values or not _KINDS[kind](values[name])
    ]


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return _is_integer(value) or isinstance(value, float)


def _is_number_or_null(value: object) -> bool:
    return value is None or _is_number(value)


# Kind -> a function that says whether a value is of this kind. A `number` is null if it was not finite.
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_integer,
    "seconds": _is_number,
    "number": _is_number_or_null,
    "object": lambda value: isinstance(value, dict),
    "ints": lambda value: isinstance(value, dict) and all(map(_is_integer, value.values())),
    "numbers": lambda value: isinstance(value, dict) and all(map(_is_number_or_null, value.values())),
    "counts": lambda value: isinstance(value, list) and all(map(_is_integer, value)),
}

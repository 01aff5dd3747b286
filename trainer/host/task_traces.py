"""Reads the files that the tasks of a run leave on their host, for status and error messages."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .error_lines import exception_in, in_short, last_words
from .safe_directory import opened

# The name of a run, and of its directories. On hosts, `current` and the doctor's *.out lie beside them, so no
# run may have these names.
RUN_ID = re.compile(r"(?!.{64}|current$|.*\.out$)[a-z0-9](?:\.?[a-z0-9-])*")
MOST_BYTES = 64 * 1024
# How many bytes of a log's end are read for its last line.
LOG_END_BYTES = 4096
_ENOUGH_TO_COMPARE = 60
# A number of this size, or larger, counts as damage.
NUMBER_LIMIT = 2.0**63
# O_NONBLOCK opens a FIFO without waiting for a writer.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# The line that trainer/program/launcher.py prints.
_PROGRAM_FAILURE = r"^{task}: the program failed: ((?:.*\n){{0,5}}?.*?) \(exit code [0-9]+\)$"
# The line that trainer/task/worker.py and trainer/process/failure.py print, even if no record can be written.
_OWN_FAILURE = re.compile(r"\w+ failed \([\w ]+\): ")
# systemd's `Result` -> the reason in words, for ends whose reason the process itself could not report.
_RESULTS = {
    "oom-kill": "out_of_memory: the kernel killed it, because its host ran out of memory: "
    "a smaller batch or model, fewer tasks on this host, or more memory helps",
    "signal": "a signal ended it",
    "core-dump": "it crashed",
    "timeout": "systemd ended it, because it took longer than its unit allows",
    "watchdog": "systemd ended it, because it gave no sign of life",
}


def last_failure(events: Path) -> str:
    """Return "class: reason" of the `failed` record of a task's last process, in at most five lines.

    `events` is the file of the task's records. Return "" if that process has no such record, or without a
    file.
    """
    for record in _last_records(events):
        if record.get("event") == "failed":
            return in_short(f"{record.get('class')}: {record.get('reason')}")
        if record.get("event") == "started":
            break
    return ""


def why_failed(events: Path, task: str, lines: Sequence[str]) -> str:
    """Return why a task's last process failed, as `last_failure` does: "class: reason", or "" if unknown.

    If the launcher of a program printed the same reason, return the printed reason, which has the remedy.
    `events` is the file of the task's records, `lines` are the last lines that the task printed.
    """
    recorded = last_failure(events)
    beginning = recorded.partition(": ")[2].partition("\n")[0][:_ENOUGH_TO_COMPARE]
    printed = program_failure(task, lines)
    return printed if beginning and beginning in printed else recorded


def written_exit_code(run_directory: Path, task: str) -> int | None:
    """Return the exit code in endings/<task>.json of a run directory: what the task's last process wrote.

    Return None if there is no such file, or no number from 0 to 255 in it.
    """
    code = number(read_object(run_directory / "endings" / f"{task}.json").get("exit_code"))
    return None if code is None or not 0 <= code < 256 else int(code)


def exit_code(values: Mapping[str, str], run_directory: Path, task: str) -> int | None:
    """Return the exit code of a task's last process; None if it is unknown.

    It is systemd's `ExecMainStatus` in `values`, {property: value} of the task's unit (after a signal, the
    signal's number); or if systemd knows no process (`ExecMainPID`), what `written_exit_code` returns.
    """
    if int(values.get("ExecMainPID") or 0):
        return int(values.get("ExecMainStatus") or 0)
    return written_exit_code(run_directory, task)


def last_step_figures(events: Path) -> dict[str, float | None]:
    """Return the figures of the last `step` record in a file of records; {} if there is none.

    The keys are `global_step`, `local_step`, `loss`, `steps_per_second` and `examples_per_second` of the
    record's window, and `wall` (Unix seconds). A value that is missing, not finite or damaged is None.
    """
    for record in _last_records(events):
        if record.get("event") != "step":
            continue
        seconds = number(record.get("seconds")) or math.nan
        return {
            "global_step": number(record.get("global_step_after")),
            "local_step": number(record.get("local_step")),
            "loss": number(record.get("loss")),
            "steps_per_second": _rate(number(record.get("steps")), seconds),
            "examples_per_second": _rate(number(record.get("examples")), seconds),
            "wall": number(record.get("wall")),
        }
    return {}


def took_part(events: Path, *, serves: bool) -> bool:
    """Return whether a process of a task took part in the run, by the last 64 KiB of its records.

    If the task `serves`, it took part if it started; another task, if it met its peers or took a step. False
    without records.
    """
    signs = {"started"} if serves else {"peers_ready", "step"}
    return any(record.get("event") in signs for record in _last_records(events))


def last_record(events: Path) -> dict[str, Any]:
    """Return the last whole record in a file of records, as its JSON object; {} if there is none."""
    return next(_last_records(events), {})


def _last_records(events: Path) -> Iterator[dict[str, Any]]:
    """Yield the records in the last 64 KiB of a file, the last record first; nothing without a file."""
    yield from filter(None, map(object_in, reversed(last_lines_of(events))))


def number(value: object) -> float | None:
    """Return `value` if it is an int or float between -2**63 and 2**63; else None.

    None for True, "1", nan and infinity, too.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < NUMBER_LIMIT:
        return None
    return value


def _rate(count: float | None, seconds: float) -> float | None:
    return number(count / seconds) if count is not None and seconds > 0 else None


def program_failure(task: str, lines: Sequence[str]) -> str:
    """Return the reason in the launcher's last line "<task>: the program failed: <reason> (exit code 1)".

    The reason is shortened to five lines. Return "" if `lines` have no such line.
    """
    reasons = re.findall(_PROGRAM_FAILURE.format(task=re.escape(task)), "\n".join(lines), re.MULTILINE)
    return in_short(reasons[-1]) if reasons else ""


def why_ended(task: str, result: str, lines: Sequence[str]) -> str:
    """Return why a task ended for which no record has a reason, in one or more lines.

    First comes the meaning of `result`, systemd's `Result` of the unit, such as "signal" (nothing for
    "exit-code"); then the error that the task printed, or its last five lines. `lines` are the last lines
    that the task printed. If there is nothing of this, return `result`.
    """
    printed = (_why_exited(task, lines) if result == "exit-code" else "") or last_words(lines)
    in_words = _RESULTS.get(result) or ("" if printed else result)
    return "\n".join(part for part in (in_words, printed) if part)


def _why_exited(task: str, lines: Sequence[str]) -> str:
    """Return the failure that the launcher printed, else the trainer's last failure, else the last exception.

    Return "" if `lines` have none of them.
    """
    failures = [number for number, line in enumerate(lines) if _OWN_FAILURE.match(line)]
    printed = "\n".join(lines[failures[-1] :]) if failures else exception_in("\n".join(lines))
    return program_failure(task, lines) or in_short(printed)


def last_lines_of(file: Path) -> list[str]:
    """Return the lines in the last 64 KiB of a file; [] if it is missing. The first line may be cut."""
    return bytes_of(file, last=True).decode("utf-8", "replace").splitlines()


def bytes_of(file: Path, *, most: int = MOST_BYTES, last: bool = False) -> bytes:
    """Return the first (or `last`) `most` bytes of a regular file at an absolute path; b"" if unreadable.

    Root calls this in directories to which the tasks' user writes. So it follows no link that this user could
    have made, and reads no endless file; for them, it returns b"".
    """
    with suppress(OSError, ValueError), opened(file.parent) as folder:
        descriptor = os.open(file.name, NO_LINK, dir_fd=folder)
        with open(file.name, "rb", opener=lambda _name, _flags: descriptor) as stream:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                stream.seek(max(status.st_size - most, 0) if last else 0)
                return stream.read(most)
    return b""


def is_occupied(place: Path) -> bool:
    """Return whether something is at `place`: a file, a directory that is not empty, or a dangling link.

    False if nothing, or an empty directory, is there.
    """
    try:
        return any(place.iterdir())
    except FileNotFoundError:
        return place.is_symlink()
    except NotADirectoryError:
        return True


def run_file(configuration: Path, job: str, index: int) -> Path:
    """Return the path of the environment file that train.yml writes for a task, such as run/ps-0.env.

    The path begins with `configuration`, psfleet's folder of configuration on the host.
    """
    return configuration / "run" / f"{job}-{index}.env"


def run_settings(file: Path) -> dict[str, str]:
    """Return {name: value} of the variables in a task's environment file, unquoted; {} if it is unreadable.

    Each line with "=" counts, also a comment.
    """
    lines = bytes_of(file).decode("utf-8", "replace").splitlines()
    values = (line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip('"') for name, value in values}


def run_id_of(file: Path) -> str:
    """Return the id of a task's last run, from its environment file (`run_file`); "" without file or id."""
    return run_settings(file).get("PSFLEET_RUN_ID", "")


def read_object(file: Path, *, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file, as `object_in` does; {} if the file is missing or unreadable.

    A file of more than `most` bytes counts as damaged: {}.
    """
    return object_in(bytes_of(file, most=most))


def object_in(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text; {} if the text is no JSON or other JSON.

    Objects that Ansible would refuse in a module's answer count as none: objects with texts that are not
    valid Unicode, or with 50 levels or more.
    """
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) and _is_flat(values) else {}


def _is_flat(value: object, deepest: int = 50) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return deepest > 0 and all(_is_flat(part, deepest - 1) for part in parts)

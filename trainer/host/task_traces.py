"""What the tasks of a run leave in files of their host, read for those who ask how they are."""

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

# The name of a run, which is that of its directories.
RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
MOST_BYTES = 64 * 1024
MOST = 2.0**63  # of a number: a larger one is damage
# A FIFO is opened without waiting for somebody who writes.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
# As trainer/program/launcher.py says it.
_TOLD_FAILURE = r"^{task}: the program failed: ((?:.*\n){{0,5}}?.*?) \(exit code [0-9]+\)$"
# As trainer/task/worker.py and trainer/process/failure.py say it, also where no record can be written.
_OWN_WORD = re.compile(r"\w+ failed \([\w ]+\): ")
# Where systemd knows more than the process could tell, in words.
_RESULTS = {
    "oom-kill": "the kernel has ended it, for the memory of its host was used up",
    "timeout": "systemd has ended it, for it took longer than its unit allows",
    "watchdog": "systemd has ended it, for it gave no sign of life",
}


def last_failure(events: Path) -> str:
    """Return class and reason of the `failed` record of a task's last process, "" where there is none."""
    for record in _last_records(events):
        if record.get("event") == "failed":
            return in_short(f"{record.get('class')}: {record.get('reason')}")
        if record.get("event") == "started":
            break
    return ""


def told_exit_code(run_directory: Path, task: str) -> int | None:
    """Return the exit code that a task's last process told when it left, None where it told none."""
    code = number(read_object(run_directory / "endings" / f"{task}.json").get("exit_code"))
    return None if code is None or not 0 <= code < 256 else int(code)


def exit_code(values: Mapping[str, str], run_directory: Path, task: str) -> int | None:
    """Return how a task's last process ended: by systemd, or by its own word where that has forgotten it."""
    if int(values.get("ExecMainPID") or 0):
        return int(values.get("ExecMainStatus") or 0)
    return told_exit_code(run_directory, task)


def last_step(events: Path) -> dict[str, float | None]:
    """Return what the last `step` record says, {} where there is none.

    `global_step`, `local_step`, `loss` (None where it was not finite), `steps_per_second` and
    `examples_per_second` of the record's window, `wall` (Unix seconds): numbers, whatever the file holds.
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


def last_record(events: Path) -> dict[str, Any]:
    """Return the last record that is whole, {} where there is none."""
    return next(_last_records(events), {})


def _last_records(events: Path) -> Iterator[dict[str, Any]]:
    """Give the records at the end of a file, the last one first."""
    yield from filter(None, map(object_in, reversed(last_lines_of(events))))


def number(value: object) -> float | None:
    """Return a number that a task has written; None for what is none, and for what only damage explains."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        return None
    return value


def _rate(count: float | None, seconds: float) -> float | None:
    return number(count / seconds) if count is not None and seconds > 0 else None


def told_failure(task: str, lines: Sequence[str]) -> str:
    """Return why the program of a task failed, by its launcher's last word in these lines, if any."""
    told = re.findall(_TOLD_FAILURE.format(task=re.escape(task)), "\n".join(lines), re.MULTILINE)
    return in_short(told[-1]) if told else ""


def why_ended(task: str, result: str, lines: Sequence[str]) -> str:
    """Return what is known of a task that recorded no reason: systemd's `result`, and its last lines."""
    said = (_why_exited(task, lines) if result == "exit-code" else "") or last_words(lines)
    told = _RESULTS.get(result) or ("" if said else result)
    return "\n".join(part for part in (told, said) if part)


def _why_exited(task: str, lines: Sequence[str]) -> str:
    """Return its launcher's last word, else the trainer's own, else the last exception; "" for none."""
    own = [number for number, line in enumerate(lines) if _OWN_WORD.match(line)]
    said = "\n".join(lines[own[-1] :]) if own else exception_in("\n".join(lines))
    return told_failure(task, lines) or in_short(said)


def last_lines_of(file: Path) -> list[str]:
    """Return the lines of the last 64 KiB of a file, the first of them cut; none where there is no file."""
    return bytes_of(file, last=True).decode("utf-8", "replace").splitlines()


def bytes_of(file: Path, *, most: int = MOST_BYTES, last: bool = False) -> bytes:
    """Return the first (or `last`) `most` bytes of a regular file, none where there is no such file.

    Root reads this where the tasks' user writes. So no link is followed that this user could have put there,
    and nothing is read that has no end.
    """
    with suppress(OSError, ValueError), opened(file.parent) as folder:
        descriptor = os.open(file.name, NO_LINK, dir_fd=folder)
        with open(file.name, "rb", opener=lambda _name, _flags: descriptor) as stream:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                stream.seek(max(found.st_size - most, 0) if last else 0)
                return stream.read(most)
    return b""


def holds(place: Path) -> bool:
    """Tell whether anything is at the place of a run, whoever put it there; not an empty directory."""
    try:
        return any(place.iterdir())
    except FileNotFoundError:
        return place.is_symlink()
    except NotADirectoryError:
        return True


def run_file(configuration: Path, job: str, index: int) -> Path:
    """Return the environment file that train.yml writes for a task."""
    return configuration / "run" / f"{job}-{index}.env"


def told_of_run(file: Path) -> dict[str, str]:
    """Return what the environment file of a task says of the run that it was last prepared for."""
    lines = bytes_of(file).decode("utf-8", "replace").splitlines()
    values = (line.split("=", 1) for line in lines if "=" in line)
    return {name: value.strip('"') for name, value in values}


def run_id_of(file: Path) -> str:
    """Return the run that a task was last prepared for, by its environment file; empty without one."""
    return told_of_run(file).get("PSFLEET_RUN_ID", "")


def read_object(file: Path, *, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is none or where it has more bytes than `most`."""
    return object_in(bytes_of(file, most=most))


def object_in(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a text is, empty where it is none.

    Nor is one that Ansible would not take in a module's answer: texts that nobody can write, or deep nests.
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

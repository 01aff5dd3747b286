"""What the tasks of a run leave in files of their host, read for those who ask how they are."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from .safe_directory import opened

LAST_LINES = 5
MOST_BYTES = 64 * 1024
# A FIFO is opened without waiting for somebody who writes.
NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def last_failure(events: Path) -> str:
    """Return class and reason of the last `failed` record, or an empty string where there is none."""
    for line in reversed(last_lines_of(events)):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and record.get("event") == "failed":
            return f"{record.get('class')}: {record.get('reason')}"
    return ""


def last_lines(log: Path) -> str:
    """Return the last lines that a task printed, or an empty string."""
    return "\n".join(line for line in last_lines_of(log)[-LAST_LINES:] if line.strip())


def last_lines_of(file: Path) -> list[str]:
    """Return the lines of the last 64 KiB of a file, the first of them cut; none where there is no file."""
    return bytes_of(file, last=True).decode("utf-8", "replace").splitlines()


def bytes_of(file: Path, *, most: int = MOST_BYTES, last: bool = False) -> bytes:
    """Return the first (or `last`) `most` bytes of a regular file, none where there is no such file.

    Root reads this where the tasks' user writes. So no link is followed that this user could have put there,
    and nothing is read that has no end.
    """
    try:
        with opened(file.parent) as folder:
            descriptor = os.open(file.name, NO_LINK, dir_fd=folder)
    except (OSError, ValueError):
        return b""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return b""
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            if last:
                stream.seek(max(found.st_size - most, 0))
            return stream.read(most)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def run_file(configuration: Path, job: str, index: int) -> Path:
    """Return the environment file that train.yml writes for a task."""
    return configuration / "run" / f"{job}-{index}.env"


def run_id_of(file: Path) -> str:
    """Return the run that a task was last prepared for, by its environment file; empty without one."""
    lines = bytes_of(file).decode("utf-8", "replace").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("PSFLEET_RUN_ID", "").strip('"')


def read_object(file: Path, *, most: int = MOST_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is none or where it has more bytes than `most`."""
    try:
        values = json.loads(bytes_of(file, most=most))
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}

"""What the tasks of a run leave in files of their host, read for those who ask how they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAST_LINES = 5
LAST_BYTES = 64 * 1024


def last_failure(events: Path) -> str:
    """Return class and reason of the last `failed` record, or an empty string where there is none."""
    for line in reversed(last_lines_of(events)):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("event") == "failed":
            return f"{record.get('class')}: {record.get('reason')}"
    return ""


def last_lines(log: Path) -> str:
    """Return the last lines that a task printed, or an empty string."""
    return "\n".join(line for line in last_lines_of(log)[-LAST_LINES:] if line.strip())


def last_lines_of(file: Path) -> list[str]:
    """Return the lines of the last 64 KiB of a file, the first of them cut; none where there is no file."""
    try:
        with file.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(stream.tell() - LAST_BYTES, 0))
            return stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def run_file(configuration: Path, job: str, index: int) -> Path:
    """Return the environment file that train.yml writes for a task."""
    return configuration / "run" / f"{job}-{index}.env"


def run_id_of(file: Path) -> str:
    """Return the run that a task was last prepared for, by its environment file; empty without one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("PSFLEET_RUN_ID", "").strip('"')


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}

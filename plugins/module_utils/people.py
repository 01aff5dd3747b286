"""The people who deployed to this host and who began a task's run, as the controller wrote them."""

from __future__ import annotations

import re
from pathlib import Path

from .host.task_traces import bytes_of, run_settings

# A user at a machine. None of these characters steers a terminal or ends a value in an environment file.
_PERSON = r"[\w.+ -]{1,80}@[\w.-]{1,80}"
PERSON = re.compile(_PERSON, re.ASCII)
# A person and the time.
BEGUN = re.compile(rf"{_PERSON}, [0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}} UTC", re.ASCII)
DEPLOYED_BY = "deployed_by"


def deployed_by(configuration: Path) -> str:
    """Return the person who deployed here last, such as "ada@laptop"; "" if unknown, or if it is invalid.

    `configuration` is the configuration directory of the host.
    """
    person = bytes_of(configuration / DEPLOYED_BY).decode("utf-8", "replace").strip()
    return person if PERSON.fullmatch(person) else ""


def begun_by(run_file: Path, run_id: str) -> str:
    """Return who began a run and when, such as "ada@laptop, 2026-03-01 12:00 UTC"; "" if unknown.

    `run_file` is a task's environment file, which says it for one run; for another `run_id` the result is "".
    """
    settings = run_settings(run_file)
    begun = settings.get("PSFLEET_RUN_BEGUN", "")
    return begun if settings.get("PSFLEET_RUN_ID") == run_id and BEGUN.fullmatch(begun) else ""

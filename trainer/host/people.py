"""Who deployed to this host and who began the run of a task, as the controller told it."""

from __future__ import annotations

import re
from pathlib import Path

from .task_traces import bytes_of, told_of_run

# A user at a machine. Nothing in it steers a terminal, or ends a value in an environment file.
_PERSON = r"[\w.+ -]{1,80}@[\w.-]{1,80}"
PERSON = re.compile(_PERSON, re.ASCII)
# A person, and when that was.
BEGUN = re.compile(rf"{_PERSON}, [0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}} UTC", re.ASCII)
DEPLOYED_BY = "deployed_by"


def deployed_by(configuration: Path) -> str:
    """Return the person who deployed here last, "" where nobody said so."""
    told = bytes_of(configuration / DEPLOYED_BY).decode("utf-8", "replace").strip()
    return told if PERSON.fullmatch(told) else ""


def begun_by(run_file: Path, run_id: str) -> str:
    """Return who began a run and when, by the environment file of a task; "" where that is of another run."""
    told = told_of_run(run_file)
    begun = told.get("PSFLEET_RUN_BEGUN", "")
    return begun if told.get("PSFLEET_RUN_ID") == run_id and BEGUN.fullmatch(begun) else ""

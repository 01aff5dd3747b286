"""The states of a run that `training_run_hook` was told, each once, by whichever playbook saw it first."""

import fcntl
import json
from pathlib import Path

# Everybody who watches a run sees its end, and so does the playbook that stops the run.
FILE_NAME = "hook.json"
_BEGINS = "running"


def note_event(folder: Path, state: str) -> bool:
    """Note in a run's folder that the hook is told of a state; return whether it was not told before.

    A run that is resumed begins anew: then each state may come again. Raises OSError.
    """
    with (folder / FILE_NAME).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        told = [] if state == _BEGINS else _states(file.read())
        if state in told:
            return False
        file.truncate(0)
        file.write(json.dumps([*told, state]) + "\n")
        return True


def _states(content: str) -> list[str]:
    try:
        states = json.loads(content or "[]")
    except ValueError:
        return []
    return states if isinstance(states, list) else []

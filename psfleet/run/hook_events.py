"""The states of a run of which `training_run_hook` was told, each by the playbook that saw it first."""

import fcntl
import json
from pathlib import Path

# Several playbooks may see the end of a run: each that watches it, and the one that stops it.
FILE_NAME = "hook.json"
_BEGINS = "running"


def note_event(folder: Path, state: str) -> bool:
    """Note in a run's folder that the hook is told of `state`; return True if the hook must be called.

    Return False if a playbook noted the state before: then the hook is not called again. The state "running"
    always returns True, and clears the earlier states, because a resumed run begins anew. Raises OSError.
    """
    with (folder / FILE_NAME).open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        states = [] if state == _BEGINS else _states(file.read())
        if state in states:
            return False
        file.truncate(0)
        file.write(json.dumps([*states, state]) + "\n")
        return True


def _states(content: str) -> list[str]:
    try:
        states = json.loads(content or "[]")
    except ValueError:
        return []
    return states if isinstance(states, list) else []

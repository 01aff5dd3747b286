"""Whether a program's process only serves, by the note that the observer in the process writes."""

import os
from contextlib import suppress
from pathlib import Path

from trainer.contract.json_files import read_object


def serving_note(run_directory: Path, task: str) -> Path:
    """Return the path of a task's note, "<run_directory>/endings/<task>.serves.json".

    The file exists while the only thread of the program's process waits in `Server.join()`.
    """
    return run_directory / "endings" / f"{task}.serves.json"


def only_serves(note: Path, pid: int) -> bool:
    """Return whether the note at the path `note` names process `pid`, which is the only one in its session.

    False without a note. The program may write any note: a false note ends only its own task, once the run is
    over.
    """
    return read_object(note).get("pid") == pid and not _others_in_session(pid)


def _others_in_session(leader: int) -> bool:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and int(entry.name) != leader:
            with suppress(OSError):  # the process has just ended
                if os.getsid(int(entry.name)) == leader:
                    return True
    return False

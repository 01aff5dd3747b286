"""Runs the tasks of one program as forks of this process, which has imported TensorFlow: once, not for each.

usage: forked_tasks.py TASKS CODES, two JSON files: the tasks to run, and the exit code of each.

A task has a `name`, a `command` (the program and its arguments), an `environment`, a `directory`, an
`output`, and `serves`: it is ended once all others have ended. Where the observer is in this process's
PYTHONPATH, it has wrapped TensorFlow for all of them.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import tensorflow  # noqa: F401  # which all tasks then have

from trainer.contract.exit_codes import STOPPED

_SET_PARENT_DEATH_SIGNAL = 1  # <linux/prctl.h>


def main() -> None:
    """Run all tasks, and write their exit codes."""
    end_with_parent()
    tasks: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
    codes_file = Path(sys.argv[2])
    running: dict[int, dict[str, Any]] = {}
    for task in tasks:
        if pid := os.fork():
            running[pid] = task
        else:
            become(task)
            return
    codes: dict[str, int] = {}
    while running:
        if all(task["serves"] for task in running.values()):
            for pid in running:
                os.kill(pid, signal.SIGTERM)
        pid, status = os.wait()
        task, code = running.pop(pid), os.waitstatus_to_exitcode(status)
        codes[task["name"]] = STOPPED if task["serves"] and code == -signal.SIGTERM else code
    codes_file.write_text(json.dumps(codes))


def end_with_parent() -> None:
    """Let this process be killed when its parent ends: nothing stays where the tests are killed."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def become(task: dict[str, Any]) -> None:
    """Run a task to its end, after which this process ends as the program would."""
    end_with_parent()
    os.environ.update(task["environment"])
    os.chdir(task["directory"])
    with Path(task["output"]).open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.argv = task["command"]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()

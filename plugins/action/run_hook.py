"""Tell a command of the user's on the controller that a run has changed its state."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from ansible.utils.display import Display

from psfleet.evidence.verdict import FILE_NAME
from psfleet.watch.wording import in_a_line
from trainer.contract.json_files import read_object

from ..plugin_utils.actions import ControllerAction

display = Display()

SECONDS = 60


class ActionModule(ControllerAction):
    """Arguments: `command` (words as a shell has them, "" for none), `run` (of decide_run) and its `state`.

    What goes wrong with the command is a warning, and no fault of the run.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        words = [str(Path(word).expanduser()) for word in shlex.split(arguments["command"])]
        if not words or self._task.check_mode:
            return {"skipped": not words}
        run = arguments["run"]
        told = {"run_id": run["id"], "state": arguments["state"], "folder": run["folder"]}
        if arguments["state"] == "judged":
            told["verdict"] = read_object(Path(run["folder"]) / FILE_NAME).get("verdict")
        problem = _call(words, json.dumps(told) + "\n")
        if problem:
            display.warning(f"training_run_hook, {shlex.join(words)}: {problem}")
        return {}


def _call(words: list[str], told: str) -> str:
    """Run the command, and return what went wrong; empty for nothing."""
    try:
        done = subprocess.run(
            words, input=told, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return in_a_line(error)
    return f"exit code {done.returncode}: {in_a_line(done.stderr, 300)}" if done.returncode else ""

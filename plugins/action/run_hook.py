"""Runs a command of the user's on the controller when a run changes its state."""

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
    """Arguments: `command` (a shell's words, "" for none), `run` (of decide_run) and its `state`.

    A failure of the command is only a warning, not a failure of the run.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        words = [str(Path(word).expanduser()) for word in shlex.split(arguments["command"])]
        if not words or self._task.check_mode:
            return {"skipped": not words}
        run = arguments["run"]
        event = {"run_id": run["id"], "state": arguments["state"], "folder": run["folder"]}
        if arguments["state"] == "judged":
            event["verdict"] = read_object(Path(run["folder"]) / FILE_NAME).get("verdict")
        problem = _call(words, json.dumps(event) + "\n")
        if problem:
            display.warning(f"training_run_hook, {shlex.join(words)}: {problem}")
        return {}


def _call(words: list[str], event: str) -> str:
    """Run the command with the event as its input; return the problem, "" if there is none."""
    try:
        done = subprocess.run(
            words, input=event, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return in_a_line(error)
    return f"exit code {done.returncode}: {in_a_line(done.stderr, 300)}" if done.returncode else ""

"""The files that train.yml writes for each task of a host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins package is not installed

from plugins.filter.task_files import environment_text

HEADER = "# Written by psfleet's train.yml: the run that {job} {index} is part of.\n"
PROGRAM_FILE = "program.json"


def run_files(
    tasks: Sequence[Mapping[str, Any]],
    directory: str,
    run: Mapping[str, Any],
    state_directory: str,
    user: str,
) -> list[dict[str, str]]:
    """Return each file in `directory` that the host's tasks of a run need, as `managed_files` takes it.

    `run` has the `id` of the run and its `settings`, as settings.json holds them. The tasks run as `user`,
    who alone, with root, reads a program's arguments.
    """
    settings = run["settings"]
    program = settings.get("program")
    files = [
        {
            "path": path,
            "content": HEADER.format(**task)
            + environment_text(_environment(str(task["name"]), directory, run, state_directory)),
        }
        for task, path in zip(tasks, run_environment_paths(tasks, directory), strict=True)
    ]
    if program and tasks:
        content = json.dumps(program, indent=4) + "\n"
        files.append(
            {"path": f"{directory}/{PROGRAM_FILE}", "content": content, "group": user, "mode": "0640"}
        )
    return files


def run_environment_paths(tasks: Sequence[Mapping[str, Any]], directory: str) -> list[str]:
    """Return the path of the environment file of each task in a run."""
    return [f"{directory}/{task['job']}-{task['index']}.env" for task in tasks]


def _environment(task: str, directory: str, run: Mapping[str, Any], state_directory: str) -> dict[str, str]:
    settings = run["settings"]
    flags = str(settings["tasks"][task]["flags"])
    if settings.get("program"):
        flags += f" --program={directory}/{PROGRAM_FILE}"
    return {
        "PSFLEET_RUN_ID": str(run["id"]),
        "PSFLEET_RUN_DIRECTORY": f"{state_directory}/runs/{run['id']}",
        "PSFLEET_TRAINING_FLAGS": flags,
    }


class FilterModule:
    """The filters `run_files` and `run_environment_paths`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"run_files": run_files, "run_environment_paths": run_environment_paths}

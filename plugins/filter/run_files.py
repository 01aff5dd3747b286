"""The files that train.yml writes for each task of a host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins package is not installed

from plugins.filter.task_files import environment_text
from trainer.host.task_traces import run_file
from trainer.records import EVALUATOR

HEADER = "# Written by psfleet's train.yml: the run that {job} {index} is part of.\n"
EVALUATOR_HEADER = "# Written by psfleet's train.yml: the run whose final model is evaluated.\n"
PROGRAM_FILE = "program.json"


def run_files(
    tasks: Sequence[Mapping[str, Any]],
    configuration: str,
    run: Mapping[str, Any],
    state_directory: str,
    user: str,
) -> list[dict[str, str]]:
    """Return each file in the `configuration` directory that the host's tasks of a run need.

    They are as `managed_files` takes them. `run` has the `id` of the run and its `settings`, as settings.json
    holds them. The tasks run as `user`, who alone, with root, reads a program's arguments.
    """
    settings = run["settings"]
    program = settings.get("program")
    files = [
        {
            "path": path,
            "content": HEADER.format(**task)
            + environment_text(_environment(str(task["name"]), configuration, run, state_directory)),
        }
        for task, path in zip(tasks, run_environment_paths(tasks, configuration), strict=True)
    ]
    if program and tasks:
        content = json.dumps(program, indent=4) + "\n"
        path = _program_file(configuration)
        files.append({"path": path, "content": content, "group": user, "mode": "0640"})
    return files


def evaluator_files(configuration: str, run: Mapping[str, Any], state_directory: str) -> list[dict[str, str]]:
    """Return the file that tells the unit of the evaluator its run, as `managed_files` takes it."""
    # The file of worker 0, which that unit reads before, may name GPUs.
    environment = {**_run_environment(run, state_directory), "CUDA_VISIBLE_DEVICES": ""}
    path = run_environment_path({"job": EVALUATOR, "index": 0}, configuration)
    return [{"path": path, "content": EVALUATOR_HEADER + environment_text(environment)}]


def run_environment_path(task: Mapping[str, Any], configuration: str) -> str:
    """Return the path of the environment file of a task in a run."""
    return str(run_file(Path(configuration), task["job"], task["index"]))


def run_environment_paths(tasks: Sequence[Mapping[str, Any]], configuration: str) -> list[str]:
    """Return the path of the environment file of each task in a run."""
    return [run_environment_path(task, configuration) for task in tasks]


def _program_file(configuration: str) -> str:
    return f"{configuration}/run/{PROGRAM_FILE}"


def _run_environment(run: Mapping[str, Any], state_directory: str) -> dict[str, str]:
    return {
        "PSFLEET_RUN_ID": str(run["id"]),
        "PSFLEET_RUN_DIRECTORY": f"{state_directory}/runs/{run['id']}",
    }


def _environment(
    task: str, configuration: str, run: Mapping[str, Any], state_directory: str
) -> dict[str, str]:
    settings = run["settings"]
    flags = str(settings["tasks"][task]["flags"])
    if settings.get("program"):
        flags += f" --program={_program_file(configuration)}"
    return {**_run_environment(run, state_directory), "PSFLEET_TRAINING_FLAGS": flags}


class FilterModule:
    """The filters `run_files`, `evaluator_files`, `run_environment_path` and `run_environment_paths`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "run_files": run_files,
            "evaluator_files": evaluator_files,
            "run_environment_path": run_environment_path,
            "run_environment_paths": run_environment_paths,
        }

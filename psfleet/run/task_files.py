"""Computes the files that deploy.yml and train.yml write for a host's tasks, for the module `files`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.plan import JOBS, ClusterPlan, PlannedTask
from trainer.contract.run_program import RunProgram
from trainer.contract.run_tasks import SERVER
from trainer.contract.task_names import EVALUATOR, split_name
from trainer.host.task_traces import run_file
from trainer.host.task_units import EVALUATION

VERIFY = "systemd-analyze verify %s"
_CLUSTER_HEADING = "# Written by psfleet's deploy.yml: what {job} {index} has to know of the cluster.\n"
_RUN_HEADING = "# Written by psfleet's train.yml: the run that {job} {index} is part of.\n"
_EVALUATOR_HEADING = (
    "# Written by psfleet's train.yml or export.yml: the run whose final model is evaluated.\n"
)


def task_environments(
    tasks: Sequence[Mapping[str, Any]],
    directory: str,
    plan: Mapping[str, Any],
    release: str,
    cuda: Mapping[str, str],
) -> list[dict[str, str]]:
    """Return [{"dest": path, "content": text}]: the environment file of each task that describes its cluster.

    The list is in the plan's order. `tasks` are some of the plan's, `directory` is where the files lie,
    `plan` is the fact `cluster_plan`, `release` is the hash of the trainer's release, and `cuda` the result
    of `cuda_environment`. Raises ValueError if a task has GPUs and its host has no environment for them.
    """
    names = {(task["job"], task["index"]) for task in tasks}
    cluster = ClusterPlan.from_json(plan)
    return [
        {
            "dest": f"{directory}/{task.job}-{task.index}.env",
            "content": _CLUSTER_HEADING.format(job=task.job, index=task.index)
            + environment_text(_cluster_variables(cluster, task, release, cuda)),
        }
        for task in cluster.tasks
        if (task.job, task.index) in names
    ]


def _cluster_variables(
    plan: ClusterPlan, task: PlannedTask, release: str, cuda: Mapping[str, str]
) -> dict[str, str]:
    """Return {name: value}: a task's environment variables about its cluster, release and GPUs.

    A task without GPUs sees none of the host's. Raises ValueError if it has GPUs and `cuda` is empty.
    """
    if task.gpus and not cuda:
        raise ValueError(f"{task.name} has GPUs, and the environment of {task.host} is not made for them")
    evaluators = plan.tasks_of(EVALUATOR)
    return {
        "PSFLEET_PS_HOSTS": plan.ps_hosts,
        "PSFLEET_WORKER_HOSTS": plan.worker_hosts,
        "PSFLEET_PLAN_HASH": plan.hash,
        "PSFLEET_RELEASE": release,
        "TF_CONFIG": plan.tf_config(task),
        # TF_CONFIG does not have the evaluator, to which the chief sends checkpoints.
        **({"PSFLEET_EVALUATOR_ADDRESS": evaluators[0].target} if evaluators else {}),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in task.gpus),
        # Without GPUs, a task ignores libraries that systemd's configuration sets for all units.
        **(cuda if task.gpus else {"LD_LIBRARY_PATH": ""}),
    }


def known_tasks(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tasks whose files and units stay on a host: its own `tasks`, servers, and the evaluator.

    A run may have a server for each worker: it is a copy of the worker's entry with the job "server". The
    evaluator, psfleet's own, is a copy of the entry of worker 0 with the job "evaluation", so it is only on
    that host, with the checkpoints.
    """
    workers = [task for task in tasks if task["job"] == "worker"]
    servers = [{**task, "job": SERVER} for task in workers]
    evaluators = [{**task, "job": EVALUATION} for task in workers if task["index"] == 0]
    return [*map(dict, tasks), *servers, *evaluators]


def gpu_drop_ins(
    tasks: Sequence[Mapping[str, Any]], directory: str, content: str, devices: str
) -> list[dict[str, str]]:
    """Return the unit psfleet-gpu-devices, then a drop-in for each unit whose task has GPUs; [] without GPUs.

    Each is {"dest": path, "content": text}; the unit also has `validate`, the command that checks it. A
    task's doctor has a drop-in, too, the evaluator has none. `content` is the text of the drop-ins, `devices`
    the text of the unit, and `directory` is systemd's.
    """
    with_gpus = [task for task in tasks if task["gpus"] and task["job"] != EVALUATION]
    units = [f"psfleet-{task['job']}@{task['index']}" for task in with_gpus]
    units += [f"psfleet-doctor@{task['job']}-{task['index']}" for task in with_gpus if task["job"] in JOBS]
    files = [{"dest": f"{directory}/{unit}.service.d/gpu.conf", "content": content} for unit in units]
    unit = {"dest": f"{directory}/psfleet-gpu-devices.service", "content": devices, "validate": VERIFY}
    return [unit, *files] if files else []


def run_files(
    tasks: Sequence[Mapping[str, Any]],
    paths: Mapping[str, str],
    run: Mapping[str, Any],
    deployed: Mapping[str, Any],
    user: str,
) -> list[dict[str, str]]:
    """Return [{"dest": path, "content": text}]: the configuration files for a host's tasks of a run.

    Each task has an environment file for its unit, and a file with its training settings. A program has
    program.json. `paths` is the fact `cluster_paths`. `deployed` has the hashes `release` and `environment`
    of the host, and `program_environments`, {key of a program's requirements: hash}; the run keeps them,
    whatever is deployed while it is going on. `run` has the `id` of the run, its `settings` as in
    settings.json, and perhaps `empty`, the names of the workers that are absent. Only `user`, as whom the
    tasks run, and root can read a program's arguments.
    """
    settings, install = run["settings"], paths["install_directory"]
    configuration = paths["configuration_directory"]
    program_file = f"{configuration}/run/program.json" if settings.get("program") else ""
    variables = _run_variables(run, paths["state_directory"]) | {
        "PSFLEET_RUN_BEGUN": str(settings.get("begun", "")),
        "PSFLEET_PROGRAM": program_file,
        **_version_variables(deployed, install),
    }
    if key := (settings.get("program") or {}).get("requirements"):
        environment = deployed["program_environments"][key]
        variables["PSFLEET_PROGRAM_PYTHON"] = f"{install}/environments/{environment}/bin/python"
    if empty := run.get("empty"):
        variables["PSFLEET_ABSENT_WORKERS"] = " ".join(str(split_name(worker)[1]) for worker in empty)
    environment = environment_text(variables)
    files = []
    for task in tasks:
        environment_file, settings_file = run_file_paths([task], configuration)
        files += [
            {"dest": environment_file, "content": _RUN_HEADING.format(**task) + environment},
            {"dest": settings_file, "content": _json_text(settings["tasks"][task["name"]])},
        ]
    if program_file and tasks:
        content = _json_text(RunProgram.from_json(settings["program"]).to_json())
        files.append({"dest": program_file, "content": content, "group": user, "mode": "0640"})
    return files


def evaluator_files(
    paths: Mapping[str, str], run: Mapping[str, Any], flags: str = ""
) -> list[dict[str, str]]:
    """Return [{"dest": path, "content": text}]: the environment file that tells the evaluator its run.

    `paths` is the fact `cluster_paths`, `flags` are the flags of the evaluator. If the `run` has the hashes
    `deployed`, as for `run_files`, these versions evaluate it, because another run may have followed on the
    host.
    """
    # The unit first reads the file of worker 0, which may name GPUs.
    environment = _run_variables(run, paths["state_directory"]) | {
        "CUDA_VISIBLE_DEVICES": "",
        "PSFLEET_EVALUATOR_FLAGS": flags,
        "PSFLEET_EVALUATED_TASK": str(run.get("exporter", run["lead"])["name"]),
    }
    if deployed := run.get("deployed"):
        environment |= _version_variables(deployed, paths["install_directory"])
    path, _ = run_file_paths([{"job": EVALUATION, "index": 0}], paths["configuration_directory"])
    return [{"dest": path, "content": _EVALUATOR_HEADING + environment_text(environment)}]


def run_file_paths(tasks: Sequence[Mapping[str, Any]], configuration: str) -> list[str]:
    """Return the paths of each task's two files for a run: the environment file, then the settings.

    `configuration` is the configuration directory. The list is flat: two paths for each of `tasks`.
    """
    files = (run_file(Path(configuration), task["job"], task["index"]) for task in tasks)
    return [str(path) for file in files for path in (file, file.with_suffix(".json"))]


def _json_text(content: object) -> str:
    return json.dumps(content, indent=4) + "\n"


def _run_variables(run: Mapping[str, Any], state_directory: str) -> dict[str, str]:
    return {
        "PSFLEET_RUN_ID": str(run["id"]),
        "PSFLEET_RUN_DIRECTORY": f"{state_directory}/runs/{run['id']}",
    }


def _version_variables(deployed: Mapping[str, str], install: str) -> dict[str, str]:
    return {
        "PSFLEET_RELEASE": deployed["release"],
        "PSFLEET_CODE": f"{install}/releases/{deployed['release']}",
        "PSFLEET_PYTHON": f"{install}/environments/{deployed['environment']}/bin/python",
    }


def environment_text(values: Mapping[str, str]) -> str:
    """Return the text of an environment file for systemd: a line NAME="value" for each variable.

    A value with double quotes is put in single quotes. Raises ValueError for a value with quotes of both
    kinds, a backslash or a line end.
    """
    return "".join(f"{name}={_quoted(name, value)}\n" for name, value in values.items())


def _quoted(name: str, value: str) -> str:
    quote = "'" if '"' in value else '"'
    if any(character in value for character in f"{quote}\\\n"):
        raise ValueError(f"{name} is {value!r}; expected no quotes of both kinds, backslashes or line ends")
    return f"{quote}{value}{quote}"

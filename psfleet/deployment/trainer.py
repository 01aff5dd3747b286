"""What the role trainer tells a host."""

import json
from collections.abc import Mapping
from typing import Any

from psfleet.deployment.cuda_environment import cuda_environment
from psfleet.deployment.host import PROJECT, Arguments, Host
from psfleet.deployment.templates import rendered, role_file
from psfleet.run.task_files import gpu_drop_ins, run_environment_path, task_environments
from trainer.contract.exit_codes import FINISHED, NO_RESTART, STOPPED
from trainer.contract.records import EVALUATOR
from trainer.contract.run_tasks import SERVER
from trainer.host.boots import SHUTDOWN, write_boot_command

_UNITS = "/etc/systemd/system"
_VERIFY = ["systemd-analyze", "verify", "%s"]
# What plan.json on a host has of the plan.
_OF_PLAN = ("version", "cluster_name", "hash", "tasks")
# The jobs whose units are made of the same template.
_JOBS = ("ps", "worker", "chief", SERVER)


def look(host: Host) -> list[Arguments]:
    """Ask whether a run is going on, and who holds the tasks' ports; for `trainer_tasks`."""
    return [
        {
            "tasks": [],
            "others": True,
            "patience": 5,
            "plan_hash": host.cluster.plan["hash"],
            "starting": host.tasks,
            "tables": host.cluster.data["tables"].get(host.name, {}),
            "metrics_directory": host.values["trainer_metrics_directory"],
            "paths": host.cluster.paths,
        }
    ]


def release(host: Host) -> list[Arguments]:
    """Put the release in place; for `content_release`."""
    install = host.cluster.paths["install_directory"]
    return [
        {
            "source": str(PROJECT / "trainer"),
            "release": host.cluster.release,
            "package": "trainer",
            "folder": f"{install}/releases",
            "link": f"{install}/current",
        }
    ]


def files(host: Host) -> list[Arguments]:
    """Write the plan, the units and the environment of each task; for `managed_files`."""
    paths, group = host.cluster.paths, {"group": host.values["trainer_user"]}
    configuration, state = paths["configuration_directory"], paths["state_directory"]
    return [
        {
            "directories": [
                {"path": configuration},
                {"path": f"{configuration}/tasks"},
                {"path": f"{configuration}/run"},
                # The setgid bit gives new files to the group, so that it can read the tasks' output.
                {"path": paths["log_directory"], **group, "mode": "2750"},
                {"path": state, **group, "mode": "0750"},
                {"path": f"{state}/runs", **group, "mode": "0750"},
                # A task's folder in it is the task's /tmp.
                {"path": f"{state}/runs/.tmp", "mode": "0700"},
                {"path": str(SHUTDOWN.parent)},
            ],
            "files": [
                {"path": f"{configuration}/plan.json", "content": _plan(host)},
                {"path": f"{configuration}/deployed_by", "content": f"{host.cluster.person}\n"},
                {"path": "/etc/tmpfiles.d/psfleet.conf", "content": role_file("trainer/tmpfiles.conf")},
                *unit_files(host),
                *_task_files(host),
            ],
            "only": [
                f"{configuration}/tasks/*.env",
                f"{configuration}/run/*.env",
                f"{_UNITS}/psfleet-*@*.service.d/gpu.conf",
                f"{_UNITS}/psfleet-gpu-devices.service",
                f"{_UNITS}/psfleet-metrics.*",
            ],
            # The files that train.yml wrote for tasks which stay in the plan.
            "kept": [run_environment_path(task, configuration) for task in _known_tasks(host)],
        }
    ]


def units(host: Host) -> list[Arguments]:
    """Stop the tasks that left the plan, and have systemd read what changed; for `trainer_units`."""
    return [
        {
            "tasks": _known_tasks(host),
            "metrics_directory": host.values["trainer_metrics_directory"],
            "metrics_record": f"{host.cluster.paths['configuration_directory']}/metrics_directory",
            "paths": host.cluster.paths,
        }
    ]


def unneeded(host: Host) -> list[Arguments]:
    """Remove the releases and environments that nothing needs any more; for `unneeded_content`."""
    programs = [program["release"] for program in host.cluster.programs]
    # An environment with a program's requirements builds on the other one.
    environments = [host.environment, host.environment["program"]]
    hashes = [environment["lock_hash"] for environment in environments if environment]
    return [
        {
            "wanted": [host.cluster.release, *programs, *hashes],
            "keep": host.values["trainer_releases_to_keep"],
            "paths": host.cluster.paths,
        }
    ]


def unit_files(host: Host) -> list[dict[str, Any]]:
    """Return the units of a host, and their drop-ins for GPUs, as `files` of `managed_files`."""
    contents = {"psfleet.target": role_file("trainer/psfleet.target")}
    contents |= {f"psfleet-{job}@.service": _unit(host, "task.service.j2", job) for job in _JOBS}
    for unit in (EVALUATOR, "doctor", "journal"):
        contents[f"psfleet-{unit}@.service"] = _unit(host, f"{unit}.service.j2")
    if host.values["trainer_metrics_directory"]:
        for unit in ("metrics.service", "metrics.timer"):
            contents[f"psfleet-{unit}"] = _unit(host, f"{unit}.j2")
    tasks = [*host.tasks, *_servers(host)]
    drop_ins = gpu_drop_ins(tasks, _UNITS, role_file("trainer/gpu.conf"))
    if drop_ins:
        contents["psfleet-gpu-devices.service"] = role_file("trainer/psfleet-gpu-devices.service")
    return [
        *(
            {"path": f"{_UNITS}/{unit}", "content": text, "validate": _VERIFY}
            for unit, text in contents.items()
        ),
        *drop_ins,
    ]


def _unit(host: Host, template: str, job: str = "") -> str:
    configuration = host.cluster.paths["configuration_directory"]

    def run_file(job: str) -> str:
        return run_environment_path({"job": job, "index": "%i"}, configuration)

    return rendered(
        f"trainer/{template}",
        job=job,
        values=host.values,
        paths=host.cluster.paths,
        tasks=host.tasks,
        run_file=run_file,
        no_restart=NO_RESTART,
        ended=(FINISHED, *NO_RESTART),
        stopped=(STOPPED, "TERM"),
        shutdown_file=SHUTDOWN,
        write_boot=write_boot_command(f"{configuration}/run/{job}-%i.boot"),
    )


def _plan(host: Host) -> str:
    plan = {name: value for name, value in host.cluster.plan.items() if name in _OF_PLAN}
    return json.dumps(plan, indent=4, sort_keys=True) + "\n"


def _task_files(host: Host) -> list[dict[str, str]]:
    directory = f"{host.cluster.paths['configuration_directory']}/tasks"
    cluster = host.cluster
    return task_environments(host.tasks, directory, cluster.plan, cluster.release, _cuda(host))


def _cuda(host: Host) -> Mapping[str, str]:
    return cuda_environment(
        host.requirements["environment"],
        host.cluster.paths["install_directory"],
        role_file("package_store/cuda.txt"),
        host.values["nvidia_cuda_directory"],
        host.values["nvidia_cuda_library_directories"],
    )


def _servers(host: Host) -> list[dict[str, Any]]:
    """Return a server for each worker: a run may have them, in addition to the plan's tasks."""
    return [{**task, "job": SERVER} for task in host.tasks if task["job"] == "worker"]


def _known_tasks(host: Host) -> list[dict[str, Any]]:
    """Return the tasks whose files and units stay on the host."""
    # The evaluator runs on the host of worker 0, which has the checkpoints.
    lead = [task for task in host.tasks if task["job"] == "worker" and task["index"] == 0]
    return [*host.tasks, *_servers(host), *({**task, "job": EVALUATOR} for task in lead)]

"""The command line: the four flags of the cluster, the run, and one flag for each training setting."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from absl import flags

from trainer.cluster import JOBS, LOCAL, PROGRAM_CHIEF, Cluster
from trainer.records import TaskIdentity
from trainer.settings import RULES, SettingsError, TrainingSettings

USAGE_TEXT = """\
Trains a model with TensorFlow's parameter servers. Start this program once for each task, with the same
--ps_hosts and --worker_hosts everywhere:

  python -m trainer --job_name=ps     --task_index=0 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224
  python -m trainer --job_name=worker --task_index=0 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224
  python -m trainer --job_name=worker --task_index=1 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224

Training starts when all tasks are there. Worker 0, the chief, initialises, saves and evaluates; every task
ends by itself when the run is over. Training flags go to the workers, the same to all of them except for
--batch_size, --data_dir, --threads and --gpu_memory_fraction.
"""

_CLUSTER_FLAGS = {
    "job_name": "ps, worker, server or local; with --program ps, worker or chief",
    "task_index": "the task's position in the list of its job, from 0",
    "ps_hosts": "host:port of each parameter server, separated by commas",
    "worker_hosts": "host:port of each worker, separated by commas",
    "run_id": "the run's name in its records",
    "program": "path of a program.json: run that program of one's own instead; it also allows job chief",
    "run_directory": "where events/, progress.json and checkpoints/ go; empty: none is written",
}
_SETTING_HELP = {
    "model": "what to train",
    "replication": "between-graph asynchronous, between-graph synchronous, in-graph, or one process alone",
    "replicas_to_aggregate": "sync: gradients in a global step; the workers beyond are backups",
    "existing_servers": "connect to servers that run already, at the workers' addresses",
    "steps": "global steps of the run",
    "epochs": "when above 0: as many steps as let the chief read the examples this often",
    "batch_size": "examples in a step of this worker",
    "learning_rate": "",
    "optimizer": "",
    "hidden_units": "width of the hidden layer",
    "activation": "of the hidden layer",
    "steps_to_validate": "local steps between printed lines",
    "checkpoint_interval_seconds": "time between the chief's checkpoints",
    "checkpoint_interval_steps": "when above 0: also global steps between the chief's checkpoints",
    "checkpoints_to_keep": "older ones are removed",
    "summary_steps": "local steps between summaries for TensorBoard; 0: none",
    "data_dir": "folder of MNIST's IDX files",
    "shard_data": "whether each worker reads its own part of every epoch, rather than all examples",
    "threads": "of this task for operations, and within one",
    "gpu_memory_fraction": "part of the memory of each of this task's GPUs that it takes at once",
    "seed": "worker k draws from seed + k",
    "barrier_deadline_seconds": "how long a task waits for the others; 0: without waiting for other workers",
}


class UsageError(Exception):
    """A command line that cannot be used; `problems` holds everything that is wrong with it."""

    def __init__(
        self, problems: Sequence[str], identity: TaskIdentity | None = None, run_directory: Path | None = None
    ) -> None:
        """Keep the problems and, as far as they are known, whose records they go to."""
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.identity = identity
        self.run_directory = run_directory


class HelpRequested(Exception):  # noqa: N818 - not an error
    """`--help` was given; the message is the help text."""


@dataclass(frozen=True)
class Options:
    """A command line that can be used.

    `run_directory` is None where nothing is to be written, `program` where a model of ours is trained.
    """

    cluster: Cluster
    settings: TrainingSettings
    identity: TaskIdentity
    run_directory: Path | None
    program: Path | None = None

    @property
    def run_id(self) -> str:
        """The run's name; empty where a task was started by hand."""
        return self.identity.run_id


def parse(arguments: Sequence[str]) -> Options:
    """Read the arguments (without the program's name) and the environment.

    Raises UsageError with every problem found, and HelpRequested.
    """
    if any(argument.lstrip("-") in {"help", "h"} for argument in arguments if argument.startswith("-")):
        raise HelpRequested(_help_text())
    values = _flag_values(arguments)
    settings, settings_problems = _settings(values)
    problems = []
    if values["job_name"] == LOCAL and not values["program"]:
        problems = _take_as_local(values)
        settings = replace(settings, replication=LOCAL)
    problems += [f"--{name} is missing" for name in ("job_name", "task_index") if not values[name]]
    is_local = settings.replication == LOCAL and not values["program"]
    cluster = Cluster(
        job=values["job_name"] or "ps",
        index=int(values["task_index"]) if values["task_index"].isdigit() else -1,
        ps_hosts=() if is_local else _split(values["ps_hosts"]),
        worker_hosts=() if is_local else _split(values["worker_hosts"]),
        plan_hash=os.environ.get("PSFLEET_PLAN_HASH", ""),
        release=os.environ.get("PSFLEET_RELEASE", ""),
        replication=settings.replication,
        existing_servers=settings.existing_servers,
    )
    if not problems:
        problems += cluster.problems(program=bool(values["program"]))
        problems += replication_problems(settings, cluster.workers)
    problems += settings_problems
    if settings.replication == "sync" and settings.replicas_to_aggregate is None:
        settings = replace(settings, replicas_to_aggregate=cluster.workers)
    run_directory = Path(values["run_directory"]) if values["run_directory"] else None
    identity = TaskIdentity(values["run_id"], cluster.job, cluster.index, cluster.plan_hash, cluster.release)
    if problems:
        known = values["job_name"] in (*JOBS, PROGRAM_CHIEF) and cluster.index >= 0
        raise UsageError(problems, identity if known else None, run_directory)
    program = Path(values["program"]) if values["program"] else None
    return Options(cluster, settings, identity, run_directory, program)


def _settings(values: Mapping[str, str]) -> tuple[TrainingSettings, list[str]]:
    try:
        given = {name: values[name] for name in RULES if values[name]}
        return TrainingSettings.from_mapping(given), []
    except SettingsError as error:
        return TrainingSettings(), [f"--{problem}" for problem in error.problems]


def _take_as_local(values: dict[str, str]) -> list[str]:
    """Turn --job_name=local into worker 0 of a local run; what speaks against it."""
    problems = []
    if values["replication"] not in {"", LOCAL}:
        problems.append(f"--replication is {values['replication']!r}, expected local with --job_name=local")
    values["job_name"] = "worker"
    values["task_index"] = values["task_index"] or "0"
    return problems


def replication_problems(settings: TrainingSettings, workers: int) -> list[str]:
    """What the settings of a replication cannot be, with each other and with so many workers."""
    problems = []
    replicas = settings.replicas_to_aggregate
    if replicas is not None and settings.replication != "sync":
        problems.append(
            f"--replicas_to_aggregate is {replicas}, expected none with --replication={settings.replication}:"
            " only sync gathers the gradients of several workers"
        )
    elif replicas is not None and replicas > workers:
        problems.append(
            f"--replicas_to_aggregate is {replicas}, expected at most {workers},"
            f" for --worker_hosts has {workers}"
        )
    if settings.existing_servers and settings.replication == LOCAL:
        problems.append(
            "--existing_servers is true, expected false with --replication=local:"
            " the one process is its own server"
        )
    return problems


def _flag_values(arguments: Sequence[str]) -> dict[str, str]:
    known = flags.FlagValues()  # type: ignore[no-untyped-call]
    for name in (*_CLUSTER_FLAGS, *RULES):
        flags.DEFINE_string(name, "", "", flag_values=known)
    try:
        rest = known(["trainer", *arguments])[1:]
    except flags.Error as error:
        raise UsageError([str(error)]) from error
    if rest:
        raise UsageError([f"{rest[0]!r} is no flag: flags are written --name=value"])
    return {name: str(known[name].value) for name in (*_CLUSTER_FLAGS, *RULES)}


def _split(hosts: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in hosts.split(",") if host.strip())


def _help_text() -> str:
    lines = [USAGE_TEXT, "The cluster and the run:"]
    for name, text in _CLUSTER_FLAGS.items():
        lines += _flag_lines(name, text)
    lines += ["", "Training:"]
    defaults = TrainingSettings().as_dict()
    for name, rule in RULES.items():
        default = "null" if defaults[name] is None else defaults[name]
        parts = [_SETTING_HELP.get(name, ""), rule.expected, f"default {default}" if default != "" else ""]
        text = "; ".join(part for part in parts if part)
        lines += _flag_lines(name, text)
    return "\n".join(lines) + "\n"


def _flag_lines(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"  --{name:<28} {text}", 100, subsequent_indent=" " * 33)

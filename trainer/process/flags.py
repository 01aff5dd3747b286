"""The command line of a task: flags for the cluster and the run, and the training settings.

The settings come from the file of `--settings`. Each also has a flag of its own, which overrides the file.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import NoReturn

from trainer.contract.contradictions import replication_problems
from trainer.contract.model_files import CardError, card_of
from trainer.contract.records import TaskIdentity
from trainer.contract.rules import SettingsError
from trainer.contract.settings import PER_HOST, RULES, TrainingSettings, default_text, summary
from trainer.process.cluster import JOBS, LOCAL, SINGLE_JOBS, Cluster

_USAGE = "python -m trainer --FLAG=VALUE ..."
_DESCRIPTION = f"""\
Trains a model with TensorFlow's parameter servers. Start this program once for each task, with the same
--ps_hosts and --worker_hosts everywhere:

  python -m trainer --job_name=ps     --task_index=0 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224
  python -m trainer --job_name=worker --task_index=0 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224
  python -m trainer --job_name=worker --task_index=1 --ps_hosts=HOST:2222 --worker_hosts=HOST:2223,HOST:2224

Training starts when all tasks are there. Worker 0, the chief, initialises, saves and evaluates; every task
ends by itself when the run is over. Training settings go to the workers, as flags or in the file of
--settings. They are the same for all workers, except for {", ".join(n for n in RULES if n in PER_HOST)}.
"""

_CLUSTER_FLAGS = {
    "job_name": "ps, worker, server or local; with --program ps, worker, chief or evaluator",
    "task_index": "the task's position in the list of its job, from 0",
    "ps_hosts": "host:port of each parameter server, separated by commas",
    "worker_hosts": "host:port of each worker, separated by commas",
    "run_id": "the run's name in its records",
    "program": "path of a program.json: run that program instead of a built-in model; it also allows the "
    "jobs chief and evaluator",
    "run_directory": "where events/, progress.json and checkpoints/ go; empty: none is written",
    "settings": 'path of a JSON file with training settings, such as {"steps": 5000}; flags override it',
}


class UsageError(Exception):
    """A command line that cannot be used; `problems` has a text for everything that is wrong with it.

    `identity` is the task that the command line names; None if its job or index is missing or not valid.
    `run_directory` is the value of its flag; None without it.
    """

    def __init__(
        self, problems: Sequence[str], identity: TaskIdentity | None = None, run_directory: Path | None = None
    ) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
        self.identity = identity
        self.run_directory = run_directory


@dataclass(frozen=True)
class Options:
    """The values of a valid command line.

    `run_directory` is None if the task is to write no files. `program` is the path of a program.json, or None
    for a built-in model. In `settings`, `replicas_to_aggregate` is a number if the replication is "sync".
    """

    cluster: Cluster
    settings: TrainingSettings
    identity: TaskIdentity
    run_directory: Path | None
    program: Path | None = None


def parse(arguments: Sequence[str]) -> Options:
    """Return the options in a command line (without the program's name) and in the environment.

    A setting's flag overrides the file of --settings. Raises UsageError with every problem. `--help` prints
    the help, and raises SystemExit.
    """
    values = _flag_values(arguments)
    is_program = bool(values["program"])
    in_file, problems = _settings_in(values["settings"])
    flags = {name: values[name] for name in RULES if values[name]}
    chosen: dict[str, object] = {**in_file, **flags}
    if values["job_name"] == LOCAL and not is_program:
        replication = chosen.get("replication", LOCAL)
        if replication != LOCAL:
            problems.append(f"--replication is {replication!r}, expected local with --job_name=local")
        values |= {"job_name": "worker", "task_index": values["task_index"] or "0"}
        chosen["replication"] = LOCAL
    problems += [f"--{name} is missing" for name in ("job_name", "task_index") if not values[name]]
    settings, settings_problems = TrainingSettings(replication=str(chosen.get("replication", ""))), []
    try:
        settings = TrainingSettings.from_mapping(chosen)
    except SettingsError as error:
        settings_problems = [
            f"--{problem}" if problem.name in flags else f"{values['settings']}: {problem}"
            for problem in error.problems
        ]
    # The settings do not apply to a program, which has all tasks of the plan.
    training = TrainingSettings() if is_program else settings
    has_hosts = training.replication != LOCAL
    absent = os.environ.get("PSFLEET_ABSENT_WORKERS", "").split()
    cluster = Cluster(
        job=values["job_name"] or "ps",
        index=int(values["task_index"]) if values["task_index"].isdigit() else -1,
        ps_hosts=_split(values["ps_hosts"]) if has_hosts else (),
        worker_hosts=_split(values["worker_hosts"]) if has_hosts else (),
        plan_hash=os.environ.get("PSFLEET_PLAN_HASH", ""),
        release=os.environ.get("PSFLEET_RELEASE", ""),
        replication=training.replication,
        existing_servers=training.existing_servers,
        absent=tuple(int(worker) for worker in absent if worker.isdigit()),
    )
    if not problems:
        problems = cluster.problems(program=is_program)
        try:
            card = card_of(settings.model)
            problems += replication_problems(settings.as_dict(), cluster.workers, "--", card).values()
        except CardError as error:
            problems += error.problems
        if settings.evaluate_every_steps and cluster.is_chief and not (is_program or values["run_directory"]):
            what = f"--evaluate_every_steps is {settings.evaluate_every_steps} without --run_directory"
            problems.append(f"{what}, where checkpoints would go; expected 0, or a --run_directory")
    problems += settings_problems
    if settings.replication == "sync" and settings.replicas_to_aggregate is None:
        settings = replace(settings, replicas_to_aggregate=cluster.workers)
    run_directory = Path(values["run_directory"]) if values["run_directory"] else None
    identity = TaskIdentity(values["run_id"], cluster.job, cluster.index, cluster.plan_hash, cluster.release)
    if problems:
        known = values["job_name"] in (*JOBS, *SINGLE_JOBS) and cluster.index >= 0
        raise UsageError(problems, identity if known else None, run_directory)
    program = Path(values["program"]) if is_program else None
    return Options(cluster, settings, identity, run_directory, program)


def _settings_in(file: str) -> tuple[Mapping[str, object], list[str]]:
    """Return ({name: value} in the file of `--settings`, []), or ({}, [why it cannot be read]).

    For "", without the flag, return ({}, []). The names and values are not checked.
    """
    if not file:
        return {}, []
    expected = 'expected a JSON object of training settings, such as {"steps": 5000}'
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"--settings is {file!r}, which cannot be read ({error}); {expected}"]
    if not isinstance(content, dict):
        return {}, [f"--settings is {file!r}, which holds no object; {expected}"]
    return content, []


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError([message])


def _flag_values(arguments: Sequence[str]) -> dict[str, str]:
    """Return {flag without "--": its text} for all flags; "" for a flag that is not in `arguments`.

    Raises UsageError for an unknown flag, and SystemExit for `--help`.
    """
    layout = partial(argparse.RawDescriptionHelpFormatter, max_help_position=34, width=110)
    parser = _Parser(usage=_USAGE, description=_DESCRIPTION, formatter_class=layout, allow_abbrev=False)
    texts = {
        "The cluster and the run": _CLUSTER_FLAGS,
        "Training": {name: _help_of_setting(name) for name in RULES},
    }
    for title, flags in texts.items():
        group = parser.add_argument_group(title)
        for name, text in flags.items():
            group.add_argument(f"--{name}", default="", metavar="", help=text)
    values, rest = parser.parse_known_args(arguments)
    if rest:
        close = get_close_matches(rest[0].strip("-").partition("=")[0], vars(values), n=1)
        meant = f" (did you mean --{close[0]}?)" if close else ""
        raise UsageError([f"{rest[0]!r} is no flag{meant}: flags are written --name=value"])
    return vars(values)


def _help_of_setting(name: str) -> str:
    text = summary(name).replace("`trainer_", "`--").replace("`", "")
    return f"{text}; {RULES[name].expected}; default {default_text(name) or 'empty'}"


def _split(hosts: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in hosts.split(",") if host.strip())

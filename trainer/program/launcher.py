"""The launcher of a program: its environment, its life under systemd, and the end of the run.

The launcher does not import TensorFlow; only the program does (docs/programs.md).
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from trainer.contract.exit_codes import CLUSTER_BROKE, CONFIGURATION, FAILURE_CLASSES, STOPPED
from trainer.contract.json_files import write_json
from trainer.contract.program_arguments import fill_placeholders, placeholders
from trainer.contract.program_progress import cluster_of, lead_task, update_progress
from trainer.contract.run_program import RunProgram
from trainer.contract.task_names import EVALUATOR_NAME
from trainer.host.port_holders import read_holders
from trainer.host.task_units import ONLY_SERVES
from trainer.process import gpus
from trainer.process.cluster import PROGRAM_CHIEF, SINGLE_JOBS, split_address
from trainer.process.console import say
from trainer.process.failure import TaskFailure
from trainer.process.flags import Options
from trainer.process.lives import Lives
from trainer.process.port_probes import REFUSED, Missing, probe_all, require_own
from trainer.process.proxies import bypass_proxies
from trainer.process.stop_request import host_goes_down
from trainer.process.systemd import notify
from trainer.program.child_process import Ending, ProgramProcess
from trainer.program.evaluator_checkpoints import Places, Receiver, Sender
from trainer.program.hints import FLAGS, with_hint
from trainer.program.serving_note import only_serves, serving_note

# The folder in which `import psfleet_records` finds the library.
LIBRARY = Path(__file__).resolve().parent / "library"
# The folders whose sitecustomize.py Python runs before the program: for the observer, and for TensorFlow 1.
OBSERVED, TENSORFLOW1 = LIBRARY.with_name("observed"), LIBRARY.with_name("tensorflow1")

# This variable has the path of the Python of the program's own environment; it is unset if the program has
# the environment of the launcher.
PYTHON = "PSFLEET_PROGRAM_PYTHON"
# This variable has the "host:port" at which the launcher of evaluator0 receives the chief's checkpoints; it
# is unset if the plan has no evaluator.
EVALUATOR_ADDRESS = "PSFLEET_EVALUATOR_ADDRESS"
# The jobs of which TF_CONFIG and the placeholders have the addresses.
CLUSTER_JOBS = ("ps", "worker", "chief")

# A unit's sandbox gives a task a /tmp of its own, which is also its home.
_OWN_TMP = "/tmp"  # noqa: S108 - nothing of others is there

_SET_DUMPABLE = 4  # <linux/prctl.h>
_SECONDS_BETWEEN_PINGS = 2.0
# It is unknown what a program needs to make progress. A program that lives this long counts as making
# progress.
_SECONDS_TO_GET_ON = 120.0
# Seconds between two probes of the other workers' ports. They grow, because probes are traffic on the
# program's ports.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 10.0
_PAUSE_SECONDS = 0.5
# A worker's host counts as gone after this many probes in a row without an answer.
_PROBES_UNTIL_GONE = 5
_DEADLINE = "trainer_program_end_deadline_minutes"
_STILL_THERE = "its port still answers"
# A worker of tf.estimator ends at its next step after the chief. A worker of a coordinator never ends, so the
# chief waits no longer than this for workers.
_WORKERS_OF_CHIEF_SECONDS = 30.0
# The hint, and the time after which it is added.
_HINT_SECONDS = 60.0
_HINT = "it trains, sleeps, hangs or waits for a task that has ended"
_PAGE = "docs/programs.md, When the run is over"


@dataclass(frozen=True)
class Program(RunProgram):
    """A program of a run on this host, and how to start it."""

    @classmethod
    def read(cls, path: Path) -> "Program":
        """Return the program that the file `program.json` at `path` describes.

        Raises TaskFailure (`configuration`) if the file is damaged, or if the program is not on this host.
        """
        try:
            program = cls.from_json(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            reason = f"{path} cannot be read ({error}); run train.yml, which writes it"
            raise TaskFailure(CONFIGURATION, reason) from error
        if not Path(program.file).is_file():
            lacks = f"lacks release {program.release} of trainer_program: run deploy.yml"
            raise TaskFailure(CONFIGURATION, f"{program.file} is not on this host, which {lacks}")
        return program

    def command(self, options: Options, cluster: Mapping[str, Sequence[str]], directory: Path) -> list[str]:
        """Return the program's command line, which begins with the Python of the program's environment.

        `cluster` is {job: addresses}; `directory` is the working directory. If an argument has the
        placeholder {cluster_file}, a JSON file with the cluster is written into `directory`. Raises OSError
        if that fails.
        """
        own = options.cluster
        hosts = {f"{job}_hosts": ",".join(cluster.get(job, ())) for job in CLUSTER_JOBS}
        host, _, port = _address_in(cluster, options).rpartition(":")
        # Tasks on one host share the directory, so the file is named after the task.
        cluster_file = directory.absolute() / f"cluster.{own.task}.json"
        values = hosts | {
            "data_dir": options.settings.data_dir,
            "run_dir": str(directory.absolute()),
            "job_name": own.job,
            "task_index": str(own.index),
            "task_host": host,
            "task_port": port,
            "cluster": json.dumps(cluster),
            "cluster_file": str(cluster_file),
        }
        if any("cluster_file" in placeholders(argument) for argument in self.arguments):
            write_json(cluster_file, cluster)
        flags = [f"--{name}={values[name]}" for name in FLAGS]
        return [
            os.environ.get(PYTHON) or sys.executable,
            self.file,
            *(flags if self.flags else ()),
            *(fill_placeholders(argument, values) for argument in self.arguments),
        ]


def run_program(options: Options, lives: Lives) -> int:
    """Run the task's program (`options.program`) to its end; return the task's exit code.

    A TaskFailure is printed, and becomes the exit code, too.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    # The program and its children run as the same user. This keeps them from writing into the memory of this
    # process, whose notifications systemd believes.
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0)
    launcher = _Launcher(options, stop, lives)
    try:
        lives.begin()
        return launcher.run()
    except TaskFailure as failure:
        say(f"{options.cluster.task} failed ({FAILURE_CLASSES[failure.code]}): {failure.reason}")
        launcher.report(phase="failed", reason=failure.reason)
        return failure.code


def program_environment(options: Options, program: Program, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return all environment variables of the program, {name: value}.

    They are those in `inherited`, without systemd's, then those of program.json, then psfleet's; the last
    counts. Raises TaskFailure (`configuration`) for a chief or an evaluator without TF_CONFIG, because no
    flag has the chief's address.
    """
    settings, cluster = options.settings, options.cluster
    # Only the launcher notifies systemd. A program that notified systemd, too, might send READY for another
    # process.
    of_systemd = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
    environment = {name: value for name, value in inherited.items() if name not in of_systemd}
    if python := inherited.get(PYTHON):
        environment |= gpus.cuda_of_environment(Path(python).parents[1], inherited)
    environment |= program.environment
    if cluster.job == "ps":
        # A ps that uses a GPU would take GPU memory from the worker on the same host.
        environment.setdefault(gpus.VISIBLE, "")
    gpus.prepare(environment)
    fraction = settings.gpu_memory_fraction
    if fraction is None:
        # By default TensorFlow takes nearly all memory of every visible GPU, even if it needs little.
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    first = [str(TENSORFLOW1)] if program.tensorflow1 else []
    first += [str(OBSERVED)] if program.observed else []
    # Python itself looks in the folder of the file. `python -m trainer.task` looks in the whole folder.
    own = [str(program.folder)] if program.folder != Path(program.file).parent else []
    path = [*first, str(LIBRARY), *own, *filter(None, [inherited.get("PYTHONPATH")])]
    tf_config = _tf_config(options, inherited.get("TF_CONFIG", ""))
    bypass_proxies(environment, chain.from_iterable(cluster_of(tf_config).values()))
    return environment | {
        "TF_CONFIG": tf_config,
        "PSFLEET_RUN_ID": options.identity.run_id,
        "PSFLEET_RUN_DIRECTORY": str(options.run_directory.absolute()) if options.run_directory else "",
        "PSFLEET_JOB": cluster.job,
        "PSFLEET_TASK_INDEX": str(cluster.index),
        "PSFLEET_PLAN_HASH": cluster.plan_hash,
        "PSFLEET_PROGRAM_RELEASE": program.release,
        "PSFLEET_BATCH_SIZE": str(settings.batch_size),
        "PSFLEET_THREADS": "" if settings.threads is None else str(settings.threads),
        "PSFLEET_GPU_MEMORY_FRACTION": "" if fraction is None else str(fraction),
        "PSFLEET_DATA_DIR": settings.data_dir,
        "PSFLEET_SEED": str(settings.seed),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
    }


def _tf_config(options: Options, inherited: str) -> str:
    """Return `inherited`, the TF_CONFIG that deploy.yml wrote; if it is "", a TF_CONFIG made from the flags.

    The flags are enough for a task started by hand. Raises TaskFailure (`configuration`) for a chief or an
    evaluator without an inherited TF_CONFIG.
    """
    if inherited:
        return inherited
    cluster = options.cluster
    if cluster.job in SINGLE_JOBS:
        raise TaskFailure(CONFIGURATION, "TF_CONFIG is missing, and no flag holds the chief's address")
    jobs = {job: hosts for job, hosts in cluster.jobs.items() if hosts}
    return json.dumps({"cluster": jobs, "task": {"type": cluster.job, "index": cluster.index}})


def _address_in(cluster: Mapping[str, Sequence[str]], options: Options) -> str:
    """Return the "host:port" of this task in `cluster`, {job: addresses}; "" if it lacks the task."""
    return next(iter(cluster.get(options.cluster.job, ())[options.cluster.index :]), "")


class _Launcher:
    def __init__(self, options: Options, stop: threading.Event, lives: Lives) -> None:
        self._options, self._stop, self._lives = options, stop, lives
        self._gets_on_at = time.monotonic() + _SECONDS_TO_GET_ON
        self._task = options.cluster.task
        self._is_lead = False
        self._port = 0
        self._next_ping = 0.0
        self._complained = False
        self._process: ProgramProcess | None = None
        self._status, self._only_serves = "", False

    def run(self) -> int:
        """Run the program to its end; return the exit code.

        The lead also waits until the other workers and the evaluator have ended; `chief0` waits for workers
        at most _WORKERS_OF_CHIEF_SECONDS. Raises TaskFailure if the program cannot be started.
        """
        options = self._options
        try:
            cluster = cluster_of(_tf_config(options, os.environ.get("TF_CONFIG", "")))
        except ValueError as error:
            raise TaskFailure(CONFIGURATION, f"{error}; run deploy.yml, which writes it") from error
        self._is_lead = self._task == lead_task(cluster)
        gpus.require_driver(self._task, os.environ)
        program = Program.read(options.program or Path())
        if address := _address_in(cluster, options):
            self._port = split_address(address)[1]
            require_own(self._task, address)
        carried = self._carry_checkpoints(cluster)
        ending = self._run_process(program, cluster)
        if isinstance(carried, Receiver) and ending.phase == "finished":
            carried.discard()
        if self._is_lead and ending.phase == "finished":
            if isinstance(carried, Sender):
                carried.hurry()
            ending = self._wait_for_others(cluster, ending, 60 * program.end_deadline_minutes)
        ending = replace(ending, reason=with_hint(ending.code, ending.reason, program, ending.lines))
        if ending.stopped and host_goes_down():
            say(f"{self._task}: its host goes down, and the run goes on")
            return STOPPED
        self.report(phase=ending.phase, reason=ending.reason, missing=[])
        reason = f": {ending.reason}" if ending.reason else ""
        say(f"{self._task}: the program {ending.phase}{reason} (exit code {ending.code})")
        return ending.code

    def _carry_checkpoints(self, cluster: Mapping[str, Sequence[str]]) -> Sender | Receiver | None:
        """Begin to send the chief's checkpoints, or as the evaluator to receive them.

        Return None for other tasks, and without an evaluator or a run directory. Raises TaskFailure
        (`cluster_broke`) if the evaluator's port is in use, which allows a restart.
        """
        options, address = self._options, os.environ.get(EVALUATOR_ADDRESS, "")
        directory, (chief, *_) = options.run_directory, (*cluster.get(PROGRAM_CHIEF, ()), "")
        if not address or not chief or directory is None or options.cluster.job not in SINGLE_JOBS:
            return None
        roots = {"run": directory.absolute()}
        if os.environ.get("HOME") == _OWN_TMP:
            # The task has a /tmp of its own. That of a task started by hand is everybody's.
            roots["tmp"] = Path(_OWN_TMP)
        places = Places(roots, options.identity.run_id)
        if options.cluster.job == PROGRAM_CHIEF:
            # Tasks of one host share the run's directory, but no /tmp.
            shared = split_address(address)[0] == split_address(chief)[0]
            return Sender(places, address, [place for place in roots if place != "run" or not shared])
        require_own(self._task, address)
        try:
            return Receiver(places, split_address(address)[1], split_address(chief)[0])
        except OSError as error:
            reason = f"{EVALUATOR_NAME} cannot listen at {address}: {error}"
            raise TaskFailure(CLUSTER_BROKE, reason) from error

    def report(self, **changes: object) -> None:
        """If this is the launcher of the lead, set these fields of `progress.json`; else do nothing.

        Only its time changes if there are no fields. If the file cannot be written, the first failure prints
        a line.
        """
        directory = self._options.run_directory
        if not self._is_lead or directory is None:
            return
        try:
            update_progress(directory, {"run_id": self._options.identity.run_id, **changes})
        except OSError as error:
            if not self._complained:
                say(f"progress cannot be written in {directory}: {error.strerror}")
            self._complained = True

    def _run_process(self, program: Program, cluster: Mapping[str, Sequence[str]]) -> Ending:
        options = self._options
        directory = options.run_directory or Path.cwd()
        environment = program_environment(options, program, os.environ)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            command = program.command(options, cluster, directory)
            process = ProgramProcess(command, environment, directory)
        except OSError as error:
            reason = f"{program.file} cannot be run in {directory}: {error}"
            raise TaskFailure(CONFIGURATION, reason) from error
        self._process, self._status = process, f"running {Path(program.file).name}"
        self.report(phase="training", reason="", missing=[])
        notify("READY=1", f"STATUS={self._status}")

        def tick() -> None:
            if self._ping() and not process.has_listened:
                process.has_listened = bool(read_holders([self._port]))

        try:
            return process.wait(self._stop, tick)
        finally:
            self._process = None

    def _ping(self) -> bool:
        """If 2 s have passed since the last time, notify systemd, report, and return True; else False."""
        if is_time := time.monotonic() >= self._next_ping:
            self._next_ping = time.monotonic() + _SECONDS_BETWEEN_PINGS
            notify("WATCHDOG=1")
            self.report()
            self._notify_if_only_serving()
            if time.monotonic() >= self._gets_on_at:
                self._lives.note_progress()
        return is_time

    def _notify_if_only_serving(self) -> None:
        """Tell systemd in the unit's status when the program begins, or ceases, to only serve.

        train.yml watches the status. If nothing has changed since the last call, do nothing.
        """
        directory = self._options.run_directory
        if self._process is None or directory is None:
            return
        serves = only_serves(serving_note(directory, self._task), self._process.pid)
        if serves != self._only_serves:
            self._only_serves = serves
            notify(f"STATUS={ONLY_SERVES if serves else self._status}")

    def _wait_for_others(
        self, cluster: Mapping[str, Sequence[str]], ending: Ending, most_seconds: float
    ) -> Ending:
        """Wait for the other workers, then for the evaluator of a chief; return as `_wait_for` does."""
        workers = {f"worker{index}": at for index, at in enumerate(cluster.get("worker", []))}
        if not cluster.get(PROGRAM_CHIEF):
            return self._wait_for(workers, ending, _DEADLINE, most_seconds)
        of_chief = (_WORKERS_OF_CHIEF_SECONDS, f"{_WORKERS_OF_CHIEF_SECONDS:g} s")
        seconds, limit = min(of_chief, (most_seconds, _DEADLINE))
        ending = self._wait_for(workers, ending, limit, seconds)
        evaluator = {EVALUATOR_NAME: at} if (at := os.environ.get(EVALUATOR_ADDRESS)) else {}
        return self._wait_for(evaluator, ending, _DEADLINE, most_seconds)

    def _wait_for(self, tasks: Mapping[str, str], ending: Ending, limit: str, most_seconds: float) -> Ending:
        """Wait until the other tasks' ports are closed or their hosts gone; return `ending`.

        After `most_seconds`, which `limit` names, print who did not end, and return `ending`, too. `tasks` is
        {task: "host:port"}, in which this task itself does not count. If this task is stopped meanwhile,
        return an Ending that says so.
        """
        began = time.monotonic()
        why = f"{_HINT}; it is ended after {most_seconds / 60:g} min ({_PAGE})"
        others = {task: address for task, address in tasks.items() if task != self._task}
        unanswered = dict.fromkeys(others, 0)
        announced: list[str] = []
        pause = _FIRST_WAIT_SECONDS
        while not self._stop.is_set():
            silent = probe_all(others)
            for task in list(others):
                reason = silent.get(task)
                unanswered[task] = unanswered[task] + 1 if reason not in {None, REFUSED} else 0
                if reason == REFUSED or unanswered[task] >= _PROBES_UNTIL_GONE:
                    del others[task]
            waited = time.monotonic() - began
            if others and waited >= most_seconds:
                say(f"{', '.join(others)} did not end within {limit}: {_HINT} ({_PAGE}).")
                others.clear()
            if not others:
                return ending
            if announced != list(others):
                announced = list(others)
                say(f"The program of {self._task} has ended; waiting for {', '.join(announced)} to end.")
                notify(f"STATUS=waiting for {', '.join(announced)} to end")
            there = f"{_STILL_THERE}: {why}" if waited >= _HINT_SECONDS else _STILL_THERE
            missing = (Missing(task, at, silent.get(task, there)) for task, at in others.items())
            self.report(phase="ending", missing=[asdict(entry) for entry in missing])
            until = time.monotonic() + pause
            while time.monotonic() < until and not self._stop.wait(_PAUSE_SECONDS):
                self._ping()
            pause = min(2 * pause, _LONGEST_WAIT_SECONDS)
        return Ending(STOPPED, stopped=True)

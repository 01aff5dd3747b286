"""The metrics of a host's tasks, for the textfile collector of Prometheus' node_exporter.

    python -m trainer.metrics [--output_file FILE]

Reads what systemd and the tasks' files say and writes it in the text format. Needs no TensorFlow, nor any
rights but to read the state directory. docs/operations.md says what each metric means.
"""

import argparse
import math
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.contract.progress import Progress
from trainer.contract.task_names import LEADS
from trainer.host.task_traces import last_step, read_object, run_file, run_id_of
from trainer.host.task_units import parse_show, task_of, unit_name

PHASES = ("waiting", "training", "ending", "finished", "stopped", "failed")
PROPERTIES = ("ActiveState", "NRestarts")
MOST_BYTES_OF_PLAN = 64 * 1024 * 1024

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

# Asks systemd: the names of units in, for each the properties of `systemctl show` out.
Show = Callable[[Sequence[str]], Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class HostTask:
    """A task of this host: the properties of its unit, and what is in the files of its last run."""

    job: str
    index: int
    unit: Mapping[str, str]
    run_id: str = ""
    step: Mapping[str, float | None] = field(default_factory=dict)
    progress: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def leads(self) -> bool:
        """Whether it may be the one that tells how the whole run is."""
        return self.name in LEADS and bool(self.progress)


@dataclass(frozen=True)
class Family:
    """A metric of a `kind` ("gauge" or "counter"): what it means, and its samples, each with labels."""

    name: str
    kind: str
    text: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def host_tasks(configuration: Path, state: Path, show: Show) -> list[HostTask]:
    """Return the tasks that deploy.yml and train.yml have given this host, by name.

    Raises ValueError where systemd gives no answer.
    """
    files = [*configuration.glob("tasks/*.env"), *configuration.glob("run/*.env")]
    known = sorted({task for file in files if (task := task_of(file.name)) and task[0] != "evaluator"})
    if not known:
        return []
    units = show([unit_name(job, index) for job, index in known])
    return [
        _host_task(job, index, unit, configuration, state)
        for (job, index), unit in zip(known, units, strict=True)
    ]


def _host_task(job: str, index: int, unit: Mapping[str, str], configuration: Path, state: Path) -> HostTask:
    run_id = run_id_of(run_file(configuration, job, index))
    if not run_id:
        return HostTask(job, index, unit)
    run = state / "runs" / run_id
    return HostTask(
        job,
        index,
        unit,
        run_id,
        last_step(run / "events" / f"{job}{index}.jsonl"),
        read_object(run / "progress.json"),
    )


def families(cluster: str, tasks: Sequence[HostTask]) -> Iterator[Family]:
    """Give the metrics of a host. What is not known has no sample; a run's stay until the task's next run."""
    for name, kind, text, value in _OF_TASKS:
        samples = [(_labels(cluster, task), value(task)) for task in tasks]
        yield Family(name, kind, text, [(labels, known) for labels, known in samples if known is not None])
    run = "psfleet_task_run_info", "gauge", "The run that the task was last prepared for."
    yield Family(*run, [(_labels(cluster, task, run_id=task.run_id), 1) for task in tasks if task.run_id])
    leads = [task for task in tasks if task.leads]
    if leads:
        # The one that has told last: the chief of an earlier run tells of that one.
        yield from _of_run(cluster, max(leads, key=lambda lead: Progress.from_mapping(lead.progress).wall))


def _of_step(field_: str) -> Callable[[HostTask], float | None]:
    return lambda task: task.step.get(field_)


def _loss(task: HostTask) -> float | None:
    """None in a record is a loss that is not finite."""
    loss = task.step.get("loss")
    return math.nan if loss is None and task.step else loss


_OF_TASKS: tuple[tuple[str, str, str, Callable[[HostTask], float | None]], ...] = (
    (
        "psfleet_task_up",
        "gauge",
        "Whether the task's process runs and listens.",
        lambda task: int(task.unit.get("ActiveState") in {"active", "reloading"}),
    ),
    (
        "psfleet_task_failed",
        "gauge",
        "Whether systemd has given the task up.",
        lambda task: int(task.unit.get("ActiveState") == "failed"),
    ),
    (
        "psfleet_task_restarts_total",
        "counter",
        "How often systemd has restarted the task since its start.",
        lambda task: int(task.unit.get("NRestarts") or 0),
    ),
    (
        "psfleet_task_local_steps_total",
        "counter",
        "Steps that the task has made in this run.",
        _of_step("local_step"),
    ),
    (
        "psfleet_task_global_step",
        "gauge",
        "The run's global step as the task last saw it.",
        _of_step("global_step"),
    ),
    ("psfleet_task_loss", "gauge", "Loss of the task's last recorded step.", _loss),
    (
        "psfleet_task_steps_per_second",
        "gauge",
        "Steps per second of the task, in its last recorded window.",
        _of_step("steps_per_second"),
    ),
    (
        "psfleet_task_examples_per_second",
        "gauge",
        "Training examples per second of the task, in its last recorded window.",
        _of_step("examples_per_second"),
    ),
    (
        "psfleet_task_last_step_timestamp_seconds",
        "gauge",
        "When the task recorded its last window of steps, in seconds since the epoch.",
        _of_step("wall"),
    ),
)


def _of_run(cluster: str, lead: HostTask) -> Iterator[Family]:
    progress = Progress.from_mapping(lead.progress)
    labels = {"cluster": cluster}
    whose = {**labels, "run_id": lead.run_id, "lead": lead.name}
    yield Family("psfleet_run_info", "gauge", "The run whose lead is on this host.", [(whose, 1)])
    phases = [({**labels, "phase": phase}, int(progress.phase == phase)) for phase in PHASES]
    yield Family("psfleet_run_phase", "gauge", "The phase that the run is in, by its lead's word.", phases)
    figures: tuple[tuple[str, str, float | None], ...] = (
        ("psfleet_run_global_step", "The run's global step.", progress.global_step),
        ("psfleet_run_last_step", "The global step at which the run ends.", progress.last_step or None),
        ("psfleet_run_loss", "Loss of the lead's last step.", progress.loss),
        ("psfleet_run_missing_tasks", "Tasks that the run waits for.", len(progress.missing)),
        (
            "psfleet_run_progress_timestamp_seconds",
            "When the lead last told how far the run is, in seconds since the epoch.",
            progress.wall or None,
        ),
    )
    for name, text, value in figures:
        yield Family(name, "gauge", text, [] if value is None else [(labels, value)])


def _labels(cluster: str, task: HostTask, **more: str) -> dict[str, str]:
    # Not "job" and "instance": these are Prometheus' own, and it would rename ours.
    return {"cluster": cluster, "task": task.name, "task_job": task.job, **more}


def render(families_: Iterable[Family]) -> str:
    """Return the lines of those that have samples, as Prometheus reads them.

    https://prometheus.io/docs/instrumenting/exposition_formats has the format.
    """
    lines = []
    for family in families_:
        if family.samples:
            lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {family.kind}"]
        for labels, value in family.samples:
            shown = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            lines.append(f"{family.name}{{{shown}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def show_units(units: Sequence[str]) -> list[dict[str, str]]:
    """Ask systemd for the properties of units. Raises ValueError where it does not tell them all."""
    command = ["systemctl", "show", f"--property={','.join(PROPERTIES)}", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = parse_show(done.stdout)
    if done.returncode or len(shown) != len(units):
        said = done.stderr.strip() or f"{len(shown)} units"
        raise ValueError(f"systemctl show was asked for {len(units)} units and said: {said}")
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the metrics of this host; 1 where that fails, so that the old ones stay and their age shows."""
    parser = argparse.ArgumentParser(prog="python -m trainer.metrics", description="Metrics for Prometheus.")
    parser.add_argument("--configuration_directory", type=Path, default=Path("/etc/psfleet"))
    parser.add_argument("--state_directory", type=Path, default=Path("/var/lib/psfleet"))
    parser.add_argument("--output_file", type=Path, help="where to write; without it they are printed")
    options = parser.parse_args(arguments)
    plan = read_object(options.configuration_directory / "plan.json", most=MOST_BYTES_OF_PLAN)
    cluster = str(plan.get("cluster_name", ""))
    try:
        tasks = host_tasks(options.configuration_directory, options.state_directory, show_units)
        text = render(families(cluster, tasks))
        if options.output_file:
            options.output_file.write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the metrics were not written: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

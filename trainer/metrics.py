"""The metrics of a host's tasks, for the textfile collector of Prometheus' node_exporter.

    python -m trainer.metrics [--output_file FILE]

Reads what systemd and the tasks' files say and writes it in the text format. Needs no TensorFlow, nor any
rights but to read the state directory. docs/operations.md says what each metric means.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.host.task_traces import last_step, read_object, run_file, run_id_of
from trainer.host.task_units import parse_show, task_of, unit_name
from trainer.metrics_text import Family, render
from trainer.progress import Progress

PHASES = ("waiting", "training", "ending", "finished", "stopped", "failed")
PROPERTIES = ("ActiveState", "NRestarts")
MOST_BYTES_OF_PLAN = 64 * 1024 * 1024

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
        return self.name in {"chief0", "worker0"} and bool(self.progress)


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
    yield from _of_units(cluster, tasks)
    yield from _of_steps(cluster, tasks)
    leads = [task for task in tasks if task.leads]
    if leads:
        yield from _of_run(cluster, max(leads, key=_last_told))


def _of_units(cluster: str, tasks: Sequence[HostTask]) -> Iterator[Family]:
    up = Family("psfleet_task_up", "gauge", "Whether the task's process runs and listens.")
    failed = Family("psfleet_task_failed", "gauge", "Whether systemd has given the task up.")
    restarts = Family(
        "psfleet_task_restarts_total", "counter", "How often systemd has restarted the task since its start."
    )
    run = Family("psfleet_task_run_info", "gauge", "The run that the task was last prepared for.")
    for task in tasks:
        labels = _labels(cluster, task)
        state = task.unit.get("ActiveState")
        up.add(labels, int(state in {"active", "reloading"}))
        failed.add(labels, int(state == "failed"))
        restarts.add(labels, int(task.unit.get("NRestarts") or 0))
        if task.run_id:
            run.add({**labels, "run_id": task.run_id}, 1)
    yield from (up, failed, restarts, run)


_STEP_FAMILIES = (
    ("local_step", "psfleet_task_local_steps_total", "counter", "Steps that the task has made in this run."),
    ("global_step", "psfleet_task_global_step", "gauge", "The run's global step as the task last saw it."),
    ("loss", "psfleet_task_loss", "gauge", "Loss of the task's last recorded step."),
    (
        "steps_per_second",
        "psfleet_task_steps_per_second",
        "gauge",
        "Steps per second of the task, in its last recorded window.",
    ),
    (
        "examples_per_second",
        "psfleet_task_examples_per_second",
        "gauge",
        "Training examples per second of the task, in its last recorded window.",
    ),
    (
        "wall",
        "psfleet_task_last_step_timestamp_seconds",
        "gauge",
        "When the task recorded its last window of steps, in seconds since the epoch.",
    ),
)


def _of_steps(cluster: str, tasks: Sequence[HostTask]) -> Iterator[Family]:
    for key, name, kind, text in _STEP_FAMILIES:
        family = Family(name, kind, text)
        for task in tasks:
            value = task.step.get(key)
            if value is None and key == "loss" and task.step:
                value = float("nan")  # a record says so of a loss that is not finite
            if value is not None:
                family.add(_labels(cluster, task), value)
        yield family


def _last_told(lead: HostTask) -> float:
    """Return when a lead has last told how its run is: the chief of an earlier run tells of that one."""
    return Progress.from_mapping(lead.progress).wall


def _of_run(cluster: str, lead: HostTask) -> Iterator[Family]:
    progress = Progress.from_mapping(lead.progress)
    labels = {"cluster": cluster}
    information = {**labels, "run_id": lead.run_id, "lead": lead.name}
    yield Family("psfleet_run_info", "gauge", "The run whose lead is on this host.").add(information, 1)
    phase = Family("psfleet_run_phase", "gauge", "The phase that the run is in, by its lead's word.")
    for name in PHASES:
        phase.add({**labels, "phase": name}, int(progress.phase == name))
    yield phase
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
        family = Family(name, "gauge", text)
        yield family if value is None else family.add(labels, value)


def _labels(cluster: str, task: HostTask) -> dict[str, str]:
    # Not "job" and "instance": these are Prometheus' own, and it would rename ours.
    return {"cluster": cluster, "task": task.name, "task_job": task.job}


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

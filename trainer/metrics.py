"""The metrics of a host's tasks, for the textfile collector of Prometheus' node_exporter.

python -m trainer.metrics [--output_file FILE]

The command reads the units' states and the tasks' files, and writes the text format. It needs no TensorFlow,
and no rights except to read the state directory. docs/operations.md describes each metric.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from trainer.contract.progress import Progress
from trainer.contract.task_names import LEADS
from trainer.host.task_traces import last_step_figures, read_object, run_file, run_id_of
from trainer.host.task_units import EVALUATION, show_units, task_of, unit_name

PHASES = ("waiting", "training", "ending", "finished", "stopped", "failed")
MOST_BYTES_OF_PLAN = 64 * 1024 * 1024

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})

# A function that returns the properties from `systemctl show` of each unit, given the units' names.
Show = Callable[[Sequence[str]], Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class HostTask:
    """A task of this host: the properties of its unit, and the figures in the files of its last run.

    Attributes:
        name: such as "worker0".
        job: such as "worker".
        unit: {property: value} of `systemctl show`.
        run_id: the id of the last run; "" if the task had none.
        step: the figures of `last_step_figures`; {} if there is no `step` record.
        progress: the object in `progress.json` of that run; {} on other hosts than the lead's.

    """

    name: str
    job: str
    unit: Mapping[str, str]
    run_id: str
    step: Mapping[str, float | None]
    progress: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """A metric: its name, its help text, and its samples, each (labels, value).

    A metric whose name ends with "_total" is a counter, any other a gauge.
    """

    name: str
    text: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def host_tasks(configuration: Path, state: Path, show: Show) -> list[HostTask]:
    """Return the tasks that have environment files on this host, sorted by job and index; no evaluator.

    deploy.yml and train.yml write the files below `configuration`; the runs' files are below `state`. Raises
    OSError or ValueError if `show` does not answer for all units.
    """
    files = [*configuration.glob("tasks/*.env"), *configuration.glob("run/*.env")]
    own = sorted({task for file in files if (task := task_of(file.name)) and task[0] != EVALUATION})
    units = show([unit_name(job, index) for job, index in own]) if own else []
    tasks = []
    for (job, index), unit in zip(own, units, strict=True):
        name, run_id = f"{job}{index}", run_id_of(run_file(configuration, job, index))
        run = state / "runs" / run_id
        step = last_step_figures(run / "events" / f"{name}.jsonl") if run_id else {}
        progress = read_object(run / "progress.json") if run_id else {}
        tasks.append(HostTask(name, job, unit, run_id, step, progress))
    return tasks


def families(cluster: str, tasks: Sequence[HostTask]) -> Iterator[Family]:
    """Yield the metrics of a host: first those of each task, then, if the lead is here, those of its run.

    `cluster` is the value of the label `cluster`. A metric without known values is yielded without samples. A
    run's metrics stay until the next run.
    """

    def labels(task: HostTask) -> dict[str, str]:
        # Prometheus itself uses the labels "job" and "instance", and would rename ours.
        return {"cluster": cluster, "task": task.name, "task_job": task.job}

    for name, text, value in _OF_TASKS:
        samples = [(labels(task), known) for task in tasks if (known := value(task)) is not None]
        yield Family(f"psfleet_task_{name}", text, samples)
    of_runs = [({**labels(task), "run_id": task.run_id}, 1) for task in tasks if task.run_id]
    yield Family("psfleet_task_run_info", "The run that the task was last prepared for.", of_runs)
    leads = [
        (Progress.from_mapping(task.progress), task) for task in tasks if task.name in LEADS and task.progress
    ]
    if leads:
        # The lead with the latest report; the report of another lead is of an earlier run.
        yield from _of_run({"cluster": cluster}, *max(leads, key=lambda lead: lead[0].wall))


def _is_in(*states: str) -> Callable[[HostTask], float]:
    return lambda task: int(task.unit.get("ActiveState") in states)


def _of_step(field: str) -> Callable[[HostTask], float | None]:
    return lambda task: task.step.get(field)


def _loss(task: HostTask) -> float | None:
    """Return the loss of the last `step` record: nan if it was not finite; None if there is no record."""
    loss = task.step.get("loss")
    return math.nan if loss is None and task.step else loss


_OF_TASKS: tuple[tuple[str, str, Callable[[HostTask], float | None]], ...] = (
    ("up", "Whether the task's process runs and listens.", _is_in("active", "reloading")),
    ("failed", "Whether systemd no longer restarts the task.", _is_in("failed")),
    (
        "restarts_total",
        "How often systemd has restarted the task since its start.",
        lambda task: int(task.unit.get("NRestarts") or 0),
    ),
    ("local_steps_total", "Steps that the task has taken in this run.", _of_step("local_step")),
    ("global_step", "The run's global step as the task last saw it.", _of_step("global_step")),
    ("loss", "Loss of the task's last recorded step.", _loss),
    (
        "steps_per_second",
        "Steps per second of the task, in its last recorded window.",
        _of_step("steps_per_second"),
    ),
    (
        "examples_per_second",
        "Training examples per second of the task, in its last recorded window.",
        _of_step("examples_per_second"),
    ),
    (
        "last_step_timestamp_seconds",
        "When the task recorded its last window of steps, in seconds since the epoch.",
        _of_step("wall"),
    ),
)


def _of_run(labels: Mapping[str, str], progress: Progress, lead: HostTask) -> Iterator[Family]:
    run_labels = {**labels, "run_id": lead.run_id, "lead": lead.name}
    yield Family("psfleet_run_info", "The run whose lead is on this host.", [(run_labels, 1)])
    phases = [({**labels, "phase": phase}, int(progress.phase == phase)) for phase in PHASES]
    yield Family("psfleet_run_phase", "The phase of the run, as its lead reports it.", phases)
    time_help = "When the lead last reported the run's progress, in seconds since the epoch."
    figures: tuple[tuple[str, str, float | None], ...] = (
        ("global_step", "The run's global step.", progress.global_step),
        ("last_step", "The global step at which the run ends.", progress.last_step or None),
        ("loss", "Loss of the lead's last step.", progress.loss),
        ("missing_tasks", "Tasks that the run waits for.", len(progress.missing)),
        ("progress_timestamp_seconds", time_help, progress.wall or None),
    )
    for name, text, value in figures:
        yield Family(f"psfleet_run_{name}", text, [] if value is None else [(labels, value)])


def render(families_: Iterable[Family]) -> str:
    """Return the text of the metrics in Prometheus' format, in their order, without those without samples.

    See https://prometheus.io/docs/instrumenting/exposition_formats.
    """
    lines = []
    for family in families_:
        if family.samples:
            kind = "counter" if family.name.endswith("_total") else "gauge"
            lines += [f"# HELP {family.name} {family.text}", f"# TYPE {family.name} {kind}"]
        for labels, value in family.samples:
            shown = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
            lines.append(f"{family.name}{{{shown}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the metrics of this host to --output_file, or print them; return 0, or 1 after a failure.

    `arguments` are without the program's name; None takes the command line. If this fails before it writes,
    the old file stays; its age shows the failure.
    """
    parser = argparse.ArgumentParser(prog="python -m trainer.metrics", description="Metrics for Prometheus.")
    parser.add_argument("--configuration_directory", type=Path, default=Path("/etc/psfleet"))
    parser.add_argument("--state_directory", type=Path, default=Path("/var/lib/psfleet"))
    parser.add_argument("--output_file", type=Path, help="where to write; without it they are printed")
    options = parser.parse_args(arguments)
    plan = read_object(options.configuration_directory / "plan.json", most=MOST_BYTES_OF_PLAN)
    cluster = str(plan.get("cluster_name", ""))
    show = partial(show_units, properties=("ActiveState", "NRestarts"))
    try:
        tasks = host_tasks(options.configuration_directory, options.state_directory, show)
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

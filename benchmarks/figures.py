"""The figures of a run between two marks; README.md here explains the figures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.losses import LossReached
from benchmarks.rows import Row, Workload
from trainer.contract.task_names import split_name

# Threads that spend less than this on a step, in milliseconds, are left out.
_LEAST_SHOWN = 0.01
Figures = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """The readings at a mark.

    Attributes:
        wall: the time, in Unix seconds.
        global_step: the run's global step.
        cpu: {task: {name of threads: CPU seconds so far (in user mode, in the kernel)}}.
        bytes: {host: bytes so far (received, sent)}.
        busy: CPU seconds of the whole machine since its start.
        memory: {task: the most bytes that the task has had in memory so far}.

    """

    wall: float
    global_step: int
    cpu: Mapping[str, Mapping[str, tuple[float, float]]]
    bytes: Mapping[str, tuple[int, int]]
    busy: float
    memory: Mapping[str, int]


def figures(row: Row, workload: Workload, begin: Sample, end: Sample) -> Figures:
    """Return {name: figure} of a run between the readings `begin` and `end`; README.md explains the names."""
    seconds, steps = end.wall - begin.wall, end.global_step - begin.global_step
    batches = steps * row.batches
    cpu = _cpu_between(begin, end)
    of_all = sum(user + kernel for user, kernel in cpu.values())
    return {
        "seconds": seconds,
        "steps": steps,
        "steps_per_second": steps / seconds,
        "examples_per_second": batches * workload.batch_size / seconds,
        "cpu_seconds_per_1000_examples": 1000 * of_all / (batches * workload.batch_size),
        **(_on_the_wire(row, workload, begin, end) if row.workers else {}),
        **_memory(row, end),
        **_cores(row, cpu, seconds),
        "cores_of_all": of_all / seconds,
        "cores_of_others": (end.busy - begin.busy - of_all) / seconds,
        "cpu_milliseconds_per_step": {
            name: [round(1000 * part / steps, 3) for part in parts]
            for name, parts in sorted(cpu.items())
            if 1000 * sum(parts) / steps >= _LEAST_SHOWN
        },
    }


def figures_of_loss(found: LossReached | None) -> Figures:
    """Return `seconds_to_loss` and `examples_to_loss`; infinity for None, a loss that was not reached."""
    return {
        "seconds_to_loss": found.seconds if found else math.inf,
        "examples_to_loss": found.examples if found else math.inf,
    }


def _on_the_wire(row: Row, workload: Workload, begin: Sample, end: Sample) -> Figures:
    """Return the figures of the network between two readings.

    - `bytes_per_worker_and_step`, and `bytes_of_the_least`: their ratio to the least that a batch needs.
    - `largest_ps_of_mean`: the bytes of the busiest ps, divided by the mean of all ps.
    - `worker_megabits_in`, `.._out`, `ps_megabits_in`, `.._out`: Mbit/s of the busiest host of the job.

    Without ps, their figures are missing.
    """
    moved = {
        host: [now - before for now, before in zip(end.bytes[host], counts, strict=True)]
        for host, counts in begin.bytes.items()
    }
    of_jobs = {job: [own for host, own in moved.items() if host.startswith(job)] for job in ("ps", "worker")}
    a_step = sum(map(sum, of_jobs["worker"])) / (row.batches * (end.global_step - begin.global_step))
    of_ps = [sum(own) for own in of_jobs["ps"]]
    bits = 8 / 1e6 / (end.wall - begin.wall)
    return {
        "bytes_per_worker_and_step": a_step,
        "bytes_of_the_least": a_step / workload.bytes_of_a_batch,
        **({"largest_ps_of_mean": max(of_ps) * len(of_ps) / sum(of_ps)} if of_ps else {}),
        **{
            f"{job}_megabits_{way}": bits * max(of_job, key=sum)[place]
            for job, of_job in of_jobs.items()
            if of_job
            for place, way in enumerate(("in", "out"))
        },
    }


def _memory(row: Row, end: Sample) -> Figures:
    """Return `memory_of_the_lead`, and `memory_of_a_<job>`, the most of its other tasks; all in bytes."""
    *others, lead = row.tasks
    jobs = dict.fromkeys(split_name(task)[0] for task in others)
    most = {job: max(end.memory[task] for task in others if task.startswith(job)) for job in jobs}
    return {"memory_of_the_lead": end.memory[lead], **{f"memory_of_a_{job}": most[job] for job in jobs}}


def _cores(row: Row, cpu: Mapping[str, tuple[float, float]], seconds: float) -> Figures:
    """Return {"cores_of_a_<job>": how many cores a task of the job used, as a mean over its tasks}."""
    jobs = [split_name(task)[0] for task in row.tasks]
    return {
        f"cores_of_a_{job}": sum(sum(own) for name, own in cpu.items() if name.startswith(f"{job}:"))
        / (jobs.count(job) * seconds)
        for job in dict.fromkeys(jobs)
    }


def _cpu_between(begin: Sample, end: Sample) -> dict[str, tuple[float, float]]:
    """Return {"<job>: <name of threads>": CPU seconds (in user mode, in the kernel) between two readings}.

    They are sums over all tasks of the job.
    """
    sums: dict[str, list[float]] = {}
    for task, threads in end.cpu.items():
        for name, spent in threads.items():
            before = begin.cpu[task].get(name, (0.0, 0.0))
            sum_ = sums.setdefault(f"{split_name(task)[0]}: {name}", [0.0, 0.0])
            for mode in (0, 1):
                sum_[mode] += spent[mode] - before[mode]
    return {name: (spent[0], spent[1]) for name, spent in sums.items()}

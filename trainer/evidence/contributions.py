"""Whether the ps' counts of each worker's steps agree with the global step and with the records."""

from __future__ import annotations

from itertools import zip_longest

from trainer.evidence.check import Check, Findings
from trainer.evidence.run import Process, Run, TaskRecords


def contributions_add_up(run: Run) -> Check:
    """What the ps counted for each worker makes up the global step, and is what that worker's records tell.

    Where they differ, the records themselves must explain it. A process that ended without `finished` may
    have applied, unrecorded, at most the global steps between its last window and the next process's first;
    a session that broke, one step. Steps recorded but not counted must lie after a restored checkpoint.
    """
    findings = Findings(lacking=run.plan_lacking)
    counted_by_ps = run.contributions
    recorded = {worker.name: worker.local_steps for worker in run.workers}
    if not counted_by_ps:
        findings.lacking.append("the chief does not tell what each worker contributed")
    else:
        total = sum(counted_by_ps.values())
        if total != run.global_steps:
            findings.wrong.append(f"contributions add up to {total}, the global step is {run.global_steps}")
        findings.wrong += [
            f"the ps counted steps of {name}, which is no worker of the plan"
            for name in sorted(set(counted_by_ps) - set(recorded))
            if run.plan
        ]
        for worker in run.workers:
            _compare_steps(run, worker, findings)
    return findings.conclude(
        "contributions_add_up",
        " + ".join(str(counted_by_ps.get(worker.name, 0)) for worker in run.workers)
        + f" = {run.global_steps}",
        {"counted_by_ps": dict(counted_by_ps), "recorded": recorded, "global_step": run.global_steps},
    )


def _compare_steps(run: Run, worker: TaskRecords, findings: Findings) -> None:
    difference = run.contributions.get(worker.name, 0) - worker.local_steps
    if difference == 0:
        return
    said = (
        f"{worker.name}: the ps counted {run.contributions.get(worker.name, 0)} of its steps, "
        f"its records tell {worker.local_steps}"
    )
    if not worker.whole:
        findings.lacking.append(said)
    elif difference > _unrecorded_at_most(run, worker) or -difference > _lost_at_most(run, worker):
        findings.wrong.append(said)


def _unrecorded_at_most(run: Run, worker: TaskRecords) -> int:
    """Count the steps that this worker may have applied without a record, by what its records tell."""
    unrecorded = len(worker.of("recovering"))
    for process, following in zip_longest(worker.processes, worker.processes[1:]):
        if process.ending is None or process.ending.event == "failed":
            until = _first_global_step(following) if following else run.global_steps
            unrecorded += max(until - _last_global_step(process), 0)
    return unrecorded


def _lost_at_most(run: Run, worker: TaskRecords) -> int:
    """Count the recorded steps of this worker that a restored checkpoint may have undone."""
    restored = [record.integer("global_step") for record in run.chief.of("restored")]
    if not restored:
        return 0
    return sum(window.steps for window in worker.windows if window.after > min(restored))


def _first_global_step(process: Process) -> int:
    return process.windows[0].before if process.windows else _met_at(process)


def _last_global_step(process: Process) -> int:
    return process.windows[-1].after if process.windows else _met_at(process)


def _met_at(process: Process) -> int:
    """Return the global step when the process met its peers; 0 where it never did."""
    met = [record.integer("global_step") for record in process.records if record.event == "peers_ready"]
    return met[-1] if met else 0

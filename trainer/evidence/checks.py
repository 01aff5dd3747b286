"""Checks of the records themselves: all there, of one plan, telling of an orderly run."""

from __future__ import annotations

from collections.abc import Iterator

from trainer.evidence.check import Check, Findings, counted, listed
from trainer.evidence.run import Process, Run, TaskRecords
from trainer.records import Record

_GOOD_ENDINGS = {"last step", "run over"}


def records_complete(run: Run) -> Check:
    """Every task of the plan left readable records of this run, without a gap and without a repetition."""
    findings = Findings(lacking=run.plan_lacking)
    for task in run.tasks.values():
        findings.wrong += [f"{task.name}: its file has {what}" for what in task.foreign]
        findings.lacking += [f"cannot read {what}" for what in task.unreadable]
        if task.repeated:
            findings.lacking.append(f"{task.name}: {counted(task.repeated, 'record')} twice in its file")
        for process in task.processes:
            _follow_local_steps(task.name, process, findings)
    findings.wrong += [f"{name} left records, but is no task of the plan" for name in run.unplanned]
    total = sum(len(task.records) for task in run.tasks.values())
    return findings.conclude(
        "records_complete",
        f"{counted(total, 'record')} of {counted(len(run.tasks), 'task')}",
        {"records": {task.name: len(task.records) for task in run.tasks.values()}},
    )


def same_plan_and_release(run: Run) -> Check:
    """Every record names the plan of plan.json, and all tasks ran the same release in the end."""
    findings = Findings(lacking=run.plan_lacking)
    releases: dict[str, str] = {}
    expected = run.plan.hash if run.plan else ""
    for task in (*run.ps, *run.workers):
        if not task.records:
            findings.lacking.append(f"{task.name} left no records")
            continue
        releases[task.name] = task.records[-1].release
        for plan_hash in sorted({record.plan_hash for record in task.records} - {expected}):
            if plan_hash:
                findings.wrong.append(f"{task.name} ran plan {plan_hash}, plan.json is {expected}")
            else:
                findings.lacking.append(f"{task.name} names no plan: it was started by hand")
    if len(set(releases.values())) > 1:
        findings.wrong.append(
            "releases differ: " + listed(f"{name} {what}" for name, what in releases.items())
        )
    elif "" in releases.values():
        findings.lacking.append("the tasks name no release: they were started by hand")
    release = next(iter(releases.values()), "")
    return findings.conclude(
        "same_plan_and_release",
        f"plan {expected}, release {release}",
        {"plan_hash": expected, "releases": releases},
    )


def ended_well(run: Run) -> Check:
    """Every worker ended by itself, no task failed for good, and the last global step was reached."""
    findings = Findings(lacking=run.plan_lacking)
    for task in run.workers:
        _judge_worker_ending(task, findings)
    for task in run.ps:
        if task.ending is not None and task.ending.event == "failed":
            findings.wrong.append(_failure(task.name, task.ending))
    last_step = run.final.integer("last_step") if run.final else None
    if last_step is not None and run.global_steps < last_step:
        findings.wrong.append(f"the run ended at global step {run.global_steps} of {last_step}")
    restarts = {task.name: task.restarts for task in (*run.ps, *run.workers) if task.restarts}
    again = listed(f"{name} {counted(count, 'time')}" for name, count in restarts.items())
    return findings.conclude(
        "ended_well",
        f"all workers finished, global step {run.global_steps} of {last_step}"
        + (f", started again: {again}" if restarts else ""),
        {"global_step": run.global_steps, "last_step": last_step, "restarts": restarts},
    )


def no_restart_from_zero(run: Run) -> Check:
    """Training began once: what was learned was never thrown away without a checkpoint to restore."""
    findings = Findings(lacking=run.plan_lacking)
    began = False
    for record in run.chief.records:
        if record.event == "initialised" and began:
            findings.wrong.append("the chief initialised the model anew after training had begun")
        began = began or record.event in {"step", "checkpointed", "restored"}
    restored = [record.integer("global_step") for record in run.chief.of("restored")]
    for worker in run.workers:
        for high, low in _falls(worker):
            if not any(step <= low for step in restored):
                back = f"{worker.name}: the global step went back from {high} to {low}"
                findings.add(f"{back}, and no checkpoint explains it", certain=run.chief.whole)
    begun = len(run.chief.of("initialised"))
    if not begun and not restored:
        findings.lacking.append("the chief does not tell how the model began")
    good = "initialised once" if begun else f"restored from global step {restored[0] if restored else 0}"
    return findings.conclude(
        "no_restart_from_zero",
        good
        + (f", restored from a checkpoint {counted(len(restored), 'time')}" if begun and restored else ""),
        {"initialised": begun, "restored": restored},
    )


def _follow_local_steps(name: str, process: Process, findings: Findings) -> None:
    """Local steps of a process count on from 0 without a gap; its `finished` tells the same count."""
    if process.nonce is None:
        findings.lacking.append(f"{name}: its records do not begin with `started`")
    reached = 0
    for window in process.windows:
        first = window.local_step - window.steps
        if window.steps < 1 or first < reached:
            findings.wrong.append(f"{name}: local step {first + 1} comes after local step {reached}")
        elif first > reached:
            findings.lacking.append(f"{name}: local steps {reached + 1} to {first} are missing")
        reached = window.local_step
    if process.local_steps > reached:
        findings.lacking.append(f"{name}: local steps {reached + 1} to {process.local_steps} are missing")


def _judge_worker_ending(task: TaskRecords, findings: Findings) -> None:
    if task.ending is None:
        findings.lacking.append(f"{task.name} has no ending: it was killed, or its records are cut")
    elif task.ending.event == "failed":
        findings.wrong.append(_failure(task.name, task.ending))
    elif task.ending.text("reason") not in _GOOD_ENDINGS:
        step, reason = task.ending.integer("global_step"), task.ending.text("reason")
        findings.wrong.append(f"{task.name} ended at global step {step}: {reason}")


def _failure(name: str, ending: Record) -> str:
    return f"{name} failed ({ending.text('class')}): {ending.text('reason')}"


def _falls(worker: TaskRecords) -> Iterator[tuple[int, int]]:
    """Yield each place where a worker's global step is lower than what it had seen before."""
    highest = 0
    for window in worker.windows:
        if window.before < highest:
            yield highest, window.before
        highest = window.after

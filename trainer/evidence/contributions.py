"""Whether the counts of each worker's gradients agree with the global step and with the records."""

from __future__ import annotations

from collections.abc import Iterable

from trainer.evidence.check import Check, Findings, counted
from trainer.evidence.run import Process, Run, TaskRecords

_COUNTS_SHOWN = 8


def contributions_add_up(run: Run) -> Check:
    """What was counted for each worker makes up the global step, and is what that worker's records tell.

    A global step is made of as many gradients as the replication says, at most one of each worker where it
    says so. Where count and records differ, the records themselves must explain it. A process that ended
    without `finished` may have applied, unrecorded, at most the global steps between its last window and the
    next process's first, and so may one that served a client until it was stopped; a session that broke,
    one step. Steps recorded but not counted must lie after a
    restored checkpoint, or be gradients that came too late for a synchronous step.
    """
    findings = Findings()
    contributions = run.contributions
    recorded = {worker.name: worker.local_steps for worker in run.workers}
    asked = run.global_steps * run.profile.gradients_per_step
    if not contributions:
        findings.lacking.append("the chief does not tell what each worker contributed")
    else:
        total = sum(contributions.values())
        if total != asked:
            findings.wrong.append(f"contributions add up to {total}, {_expected(run)}")
        findings.wrong += [
            f"the chief counted steps of {name}, which is no worker of the run"
            for name in sorted(set(contributions) - set(recorded))
        ]
        for worker in run.workers:
            _compare_steps(run, worker, findings)
    return findings.conclude(
        "contributions_add_up",
        f"{_sum_in_words(run)} = {asked}"
        + (
            f", {counted(run.profile.gradients_per_step, 'gradient')} to a step"
            if asked != run.global_steps
            else ""
        ),
        {"counted": dict(contributions), "recorded": recorded, "global_step": run.global_steps},
    )


def _sum_in_words(run: Run) -> str:
    counts = [run.contributions.get(worker.name, 0) for worker in run.workers]
    if len(counts) <= _COUNTS_SHOWN:
        return " + ".join(map(str, counts))
    return f"{len(counts)} counts from {min(counts)} to {max(counts)}: {sum(counts)}"


def _expected(run: Run) -> str:
    per_step = run.profile.gradients_per_step
    if per_step == 1:
        return f"the global step is {run.global_steps}"
    return f"{run.global_steps} global steps of {per_step} gradients are {run.global_steps * per_step}"


def _compare_steps(run: Run, worker: TaskRecords, findings: Findings) -> None:
    count = run.contributions.get(worker.name, 0)
    if run.profile.once_per_step and count > run.global_steps:
        findings.wrong.append(
            f"{worker.name}: {count} gradients in {run.global_steps} global steps, which take one each"
        )
    difference = count - worker.local_steps
    if difference == 0:
        return
    said = f"{worker.name}: the chief counted {count} of its steps, its records tell {worker.local_steps}"
    if not worker.whole:
        findings.lacking.append(said)
    elif difference > _unrecorded_at_most(run, worker) or -difference > _lost_at_most(run, worker):
        findings.wrong.append(said)


def unrecorded_spans(run: Run, worker: TaskRecords) -> list[tuple[int, int | None]]:
    """Return the ranges of global steps in which this worker may have taken steps without a record.

    Each is from the last window of a process that ended without a word to the first of those after it; None
    where there is none.
    """
    lives = worker.processes
    return [
        (_last_global_step(process), _first_global_step(lives[number:]))
        for number, process in enumerate(lives, start=1)
        if _cut_off(process) or (number < len(lives) and _served_on(run, worker, process))
    ]


def sessions_broken(run: Run, worker: TaskRecords) -> int:
    """Count the sessions that broke, perhaps after a step was made and before this worker had counted it."""
    broken = len(worker.of("recovering"))
    if run.profile.one_client and worker.name != run.chief.name:
        # The client's sessions drive this worker; one breaks also when the client is killed.
        broken += len(run.chief.of("recovering")) + run.chief.restarts
    return broken


def _unrecorded_at_most(run: Run, worker: TaskRecords) -> int:
    """Count the steps that this worker may have applied without a record, by what its records tell."""
    spans = unrecorded_spans(run, worker)
    steps = sum(max((run.global_steps if end is None else end) - start, 0) for start, end in spans)
    return steps + sessions_broken(run, worker)


def _cut_off(process: Process) -> bool:
    return process.ending is None or process.ending.event == "failed"


def _served_on(run: Run, worker: TaskRecords, process: Process) -> bool:
    """Whether this worker was stopped while its server may have computed towers after its last look."""
    stopped = process.ending is not None and process.ending.text("reason") == "stopped"
    return stopped and run.profile.one_client and worker.name != run.chief.name


def _lost_at_most(run: Run, worker: TaskRecords) -> int:
    """Count the recorded steps of this worker that may not be in the model, though it computed them."""
    if run.profile.drops_late_gradients:
        return worker.local_steps
    restored = [record.integer("global_step") for record in run.chief.of("restored")]
    if not restored:
        return 0
    return sum(window.steps for window in worker.windows if window.after > min(restored))


def _first_global_step(processes: Iterable[Process]) -> int | None:
    """Return where the first of these began that took steps or met its peers; None where none did."""
    for process in processes:
        begun = process.windows[0].before if process.windows else _met_at(process)
        if begun is not None:
            return begun
    return None


def _last_global_step(process: Process) -> int:
    return process.windows[-1].after if process.windows else _met_at(process) or 0


def _met_at(process: Process) -> int | None:
    """Return the global step when the process met its peers; None where it never did."""
    met = [record.integer("global_step") for record in process.records if record.event == "peers_ready"]
    return met[-1] if met else None

"""Checks that the counts of each worker's gradients agree with the global step and with the records."""

import math
from collections.abc import Mapping

from psfleet.evidence.answer import Findings, Good, counted
from psfleet.evidence.card import TRAIN_ANEW, Card, Group, check
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import STOPPED_REASONS
from trainer.contract.rules import SettingsError
from trainer.contract.settings import TrainingSettings

_COUNTS_SHOWN = 8
_OF_CALLS = ("steps_per_call", "push_every", "pull_every")


@check(
    Card(
        Group.SHARING,
        holds=(
            "the gradients counted for each worker add up to the global steps, and agree with the worker's "
            "records"
        ),
        fails="the counts differ, and the records do not explain why",
        unknown="the chief's last record is missing, or a worker's records end early",
        advice=(
            f"The counts on the parameter servers and the records disagree. {TRAIN_ANEW} If it happens "
            "again, keep the run's folder and report a bug."
        ),
    )
)
def contributions_add_up(findings: Findings, run: Run) -> Good:
    """Check that the counts of all workers add up to the global step, and match the workers' own records.

    A global step is made of as many gradients as the replication requires, in some modes at most one per
    worker. Where a count and the records differ, the records themselves must explain it:

    - A process that ended without `finished`, or that served a client until it was stopped, may have applied
      steps without a record: at most the global steps between its last window and the next process's first
      window.
    - A session that broke may have applied the steps of one call (`steps_per_call`) without a record.
    - Recorded steps that were not counted must lie after a restored checkpoint, or be gradients that came too
      late for a synchronous step.

    For a lost worker whose host kept the records, the count replaces the records.
    Figures: `counted` and `recorded`, {worker: steps}; `global_step`, the global steps that were made.
    """
    counts, steps, per_step = run.contributions, run.steps_made, run.rules.gradients_per_step
    recorded = {worker.name: worker.local_steps for worker in run.with_lost}
    gradients = counted(per_step, "gradient")
    if not counts:
        findings.lacking.append("the chief did not record what each worker contributed")
    else:
        total = sum(counts.values())
        if total != steps * per_step:
            expected = f"{steps} global steps of {gradients} are {steps * per_step}"
            made = "moved by" if run.first_step else "is"
            expected = expected if per_step > 1 else f"the global step {made} {steps}"
            findings.wrong.append(f"contributions add up to {total}, {expected}")
        findings.wrong += [
            f"the chief counted steps of {name}, which is no worker of the run"
            for name in sorted(set(counts) - set(recorded))
        ]
        for worker in run.recorded_workers:
            _compare_steps(run, worker, findings)
    each = [counts.get(name, 0) for name in recorded]
    good = " + ".join(map(str, each))
    if len(each) > _COUNTS_SHOWN:
        good = f"{len(each)} counts from {min(each)} to {max(each)}: {sum(each)}"
    good += f" = {steps * per_step}" + (f", {gradients} to a step" if steps * per_step != steps else "")
    return good, {"counted": dict(counts), "recorded": recorded, "global_step": steps}


def _compare_steps(run: Run, worker: TaskRecords, findings: Findings) -> None:
    count = run.contributions.get(worker.name, 0)
    if run.rules.once_per_step and count > run.steps_made:
        once = f"{count} gradients in {run.steps_made} global steps, and each step takes one"
        findings.wrong.append(f"{worker.name}: {once}")
    difference = count - worker.local_steps
    if difference == 0:
        return
    difference_in_words = (
        f"{worker.name}: the chief counted {count} of its steps, its own records show {worker.local_steps}"
    )
    if not worker.whole and not run.is_lost(worker.name):
        findings.lacking.append(difference_in_words)
    elif difference > _unrecorded_at_most(run, worker) or -difference > _lost_at_most(run, worker):
        findings.add(difference_in_words, certain=not worker.unreadable)


def unrecorded_spans(run: Run, worker: TaskRecords) -> list[tuple[int, float]]:
    """Return the ranges of global steps in which this worker may have taken steps without a record.

    Each range (from, to) lies between the last window of a process that was cut off (`Process.cut_off`) and
    the first window of a later process; `to` is infinity if there is none. In-graph, a process that was
    stopped and started again counts as cut off, except worker 0's. The latest range comes first; [] if there
    is none.
    """
    spans: list[tuple[int, float]] = []
    begun = math.inf  # the first global step of the processes after this one
    for process in reversed(worker.processes):
        # The server of a stopped process may have computed gradients after its last record.
        stopped = process.ending is not None and process.ending.text("reason") in STOPPED_REASONS
        came_back = process is not worker.processes[-1]
        if process.cut_off or (stopped and came_back and _is_served(run, worker)):
            spans.append((process.reach[1] if process.reach else 0, begun))
        begun = process.reach[0] if process.reach else begun
    return spans


def broken_sessions(run: Run, worker: TaskRecords) -> int:
    """Return how many sessions broke, perhaps between a step and this worker's record of the step.

    These are the worker's `recovering` records. In-graph, the sessions of the client (worker 0) count for
    every other worker, too: its `recovering` records and its new starts.
    """
    broken = len(worker.of("recovering"))
    if _is_served(run, worker):
        # The client's sessions drive this worker; they also break when the client is killed.
        broken += len(run.chief.of("recovering")) + max(len(run.chief.processes) - 1, 0)
    return broken


def steps_of_broken_sessions(run: Run, worker: TaskRecords) -> int:
    """Return the most steps that broken sessions may have made without a record of this worker.

    This is `broken_sessions` times the steps of one call: 1 in-graph and in a program, else as many as the
    worker's settings permit.
    """
    calls = not (run.rules.one_client or run.program)
    most = max(map(_steps_in_a_call, worker.settings), default=1) if calls else 1
    return broken_sessions(run, worker) * most


def _steps_in_a_call(settings: Mapping[str, object]) -> int:
    """Return the most steps that one call takes with these settings.

    Return 1 if the settings lack `steps_per_call`, or if one of them is invalid.
    """
    given = {name: settings[name] for name in _OF_CALLS if isinstance(settings.get(name), int)}
    try:
        return TrainingSettings.from_mapping(given).most_steps_in_a_call if "steps_per_call" in given else 1
    except SettingsError:
        return 1


def _unrecorded_at_most(run: Run, worker: TaskRecords) -> int:
    spans = unrecorded_spans(run, worker)
    ends = ((start, run.global_steps if math.isinf(end) else int(end)) for start, end in spans)
    return sum(max(end - start, 0) for start, end in ends) + steps_of_broken_sessions(run, worker)


def _is_served(run: Run, worker: TaskRecords) -> bool:
    """Return whether another task, the client worker 0, takes this worker's steps (in-graph).

    False for worker 0 itself, and for every other replication.
    """
    return run.rules.one_client and worker.name != run.chief.name


def _lost_at_most(run: Run, worker: TaskRecords) -> int:
    """Return the most recorded steps of this worker that may be missing from the model.

    If late gradients are dropped (sync), all its steps. Else the steps of its windows that end after the
    lowest restored global step; 0 if nothing was restored.
    """
    if run.rules.drops_late_gradients:
        return worker.local_steps
    restored = [record.integer("global_step") for record in run.chief.of("restored")]
    restored = restored[1:] if run.first_step else restored  # the first one begins the part
    if not restored:
        return 0
    return sum(window.steps for window in worker.windows if window.after > min(restored))

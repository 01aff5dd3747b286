"""Judges a run of a user's program: how its tasks ended, and what it recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from psfleet.evidence import convergence, sharing
from psfleet.evidence.answer import Answer, Findings, Good, counted, listed, size
from psfleet.evidence.card import ALWAYS, READ_THE_LOGS, Card, Group, check
from psfleet.evidence.endings import ENDED_BY_PLAYBOOK, PLAYBOOK, Ending
from psfleet.evidence.log_patterns import log_patterns
from psfleet.evidence.older_releases import PLACES, could_record, unrecorded_clauses
from psfleet.evidence.program_learning import goals_reached, level_losses
from psfleet.evidence.program_sharing import (
    dropped_gradients,
    has_seen_training,
    has_uncertain_counts,
    parameters_shared,
    unproven_sharing,
    unshared_variables,
    was_observed,
    with_backups,
    workers_trained,
)
from psfleet.evidence.reasons import in_a_line, join_failures, recorded_failure
from psfleet.evidence.record_checks import records_complete, same_plan_and_release
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.step_numbers import steps_numbered
from trainer.contract.task_names import EVALUATOR

_UNKNOWN = Ending(alive=False, failed=False, exit_code=None)
_Falls = Mapping[str, tuple[int, int]]
TOGETHER, FALLEN = "the workers trained one model together", "the loss fell"


@dataclass
class ProgramAnswers:
    """The answers of the checks that a run of a program allows, and what the run does not show.

    `open` is {clause: reason} of the latter; a clause such as "the loss fell" follows "it is not shown that".
    `together` is True if the workers are shown to train one model, `learned` if the model is shown to learn.
    `observed` is True if psfleet itself saw where the parameters were, and which tasks changed them.
    """

    checks: list[Answer] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    together: bool = False
    observed: bool = False
    learned: bool = False

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What the run does not show, in sentences: one for each entry of `open`."""
        return sentences(self.open)


def sentences(not_shown: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each entry of `not_shown`, {clause: reason}; () for {}.

    Example: sentences({"the loss fell": "no loss was recorded"}) -> ("It is not shown that the loss fell: no
    loss was recorded.",)
    """
    return tuple(f"It is not shown that {what}: {why}." for what, why in not_shown.items())


def judge_program(run: Run, settings: EvidenceSettings) -> ProgramAnswers:
    """Return the answers of all checks that the run allows, and what the run does not show."""
    answers = ProgramAnswers([tasks_ended_well(run)])
    if any(task.records for task in run.tasks.values()):
        answers.checks += [records_complete(run), same_plan_and_release(run)]
    falls = _falls(run)
    _check_idle_workers(run, answers)
    _check_sharing(run, settings, answers, falls)
    _name_falls(falls, answers)
    _check_traffic(run, settings, answers)
    _check_learning(run, settings, answers)
    if settings.log_patterns:
        answers.checks.append(log_patterns(run, settings.log_patterns))
    _name_ends(run, answers)
    return answers


@check(
    Card(
        Group.RECORDS,
        holds=(
            "the lead ended by itself with exit code 0; every other task did the same, or a playbook ended "
            "it after the run; each task left a log and recorded no failure"
        ),
        fails="a task failed, or the lead was ended",
        unknown="a task left no log, or nobody recorded how the task ended",
        advice=f"{READ_THE_LOGS} Fix the program, deploy it, and train again.",
        models="",
        programs=ALWAYS,
    )
)
def tasks_ended_well(findings: Findings, run: Run) -> Good:
    """Check that the lead ended by itself with exit code 0, and that the others did so or were ended later.

    tasks.json has what systemd knows of each ending. A task without a log was never started. Figures:
    `tasks`, {task: how it ended, in words}.
    """
    findings.lacking += run.unusable_endings
    lead = run.chief.name
    ended: dict[str, str] = {}
    failures = []
    for name in (task.name for task in run.expected):
        ending = run.endings.get(name)
        if ending is None:
            if not run.unusable_endings:
                findings.lacking.append(f"tasks.json does not say how {name} ended")
            continue
        if not (run.folder / "logs" / f"{name}.out").exists():
            findings.lacking.append(f"{name} left no log: nothing shows that it ran")
        ended[name] = _in_words(ending)
        if ending.well and ending.exit_code is None and ending.ended_by != PLAYBOOK:
            findings.lacking.append(
                f"it is unknown how {name} ended: systemd has forgotten it, and the task recorded nothing"
            )
        elif not ending.well or (name == lead and not ending.by_itself):
            why = f": {in_a_line(ending.reason)}" if ending.reason else ""
            failures.append((name, f"{ended[name]}{why}"))
    for task in run.all_tasks:
        why = in_a_line(recorded_failure(task).partition(": ")[2])
        # A reason that is in tasks.json was added above.
        if why and why not in run.endings.get(task.name, _UNKNOWN).reason:
            failures.append((task.name, f"recorded that it failed: {why}"))
    findings.wrong += join_failures(failures)
    others = listed(f"{name} {how}" for name, how in ended.items() if name != lead)
    return f"{lead} ended by itself, {others}", {"tasks": ended}


@check(
    Card(
        Group.SHARING,
        holds=(
            "each task received and sent at least `minimum_exchanged_bytes` (65536), which the launcher's "
            "probes do not reach"
        ),
        fails="a task received or sent less",
        unknown="never: `not_shown` names tasks whose bytes nobody counted",
        advice="The tasks exchanged hardly any data. Check whether the program uses its flags or TF_CONFIG.",
        models="",
        programs="with two or more tasks",
    )
)
def tasks_exchanged(findings: Findings, exchanged: Mapping[str, tuple[int, int]], minimum: float) -> Good:
    """Check that every task in `exchanged` received at least `minimum` bytes, and sent as many.

    `exchanged` is {task: (bytes received, bytes sent)} of the tasks whose bytes were counted. A task that
    trains alone exchanges fewer. Figures: {task: {`bytes_received`, `bytes_sent`}}.
    """
    findings.wrong += [
        f"{name} received {received} bytes and sent {sent}, expected at least {minimum:g} each way"
        for name, (received, sent) in exchanged.items()
        if min(received, sent) < minimum
    ]
    amounts = listed(f"{name} received {size(of[0])}, sent {size(of[1])}" for name, of in exchanged.items())
    return amounts, {name: {"bytes_received": of[0], "bytes_sent": of[1]} for name, of in exchanged.items()}


def _check_idle_workers(run: Run, answers: ProgramAnswers) -> None:
    """Add the check `workers_trained` if psfleet saw a worker train, and another worker recorded no step.

    Nothing is added for one worker, or with a coordinator. psfleet does not see the training of every
    program.
    """
    silent = [worker for worker in run.workers if not worker.windows]
    if run.rules.shared and silent and not run.coordinated and has_seen_training(run):
        answers.checks.append(workers_trained(run))


def _check_sharing(run: Run, settings: EvidenceSettings, answers: ProgramAnswers, falls: _Falls) -> None:
    silent = [worker.name for worker in run.workers if not worker.windows]
    synchronous = any(
        given.get("replication") == "sync" for worker in run.workers for given in worker.settings
    )
    met = [was_observed(worker) for worker in run.workers] if run.rules.shared else []
    if any(met) and (all(met) or not silent):
        answers.checks += [sharing.same_parameter_servers(run), sharing.workers_met(run)]
        answers.checks += [parameters_shared(run)] if could_record(run, PLACES) else []
    if not run.rules.shared:
        answers.together = not silent
    elif run.coordinated:
        _check_coordinator(run, settings, answers)
    elif len(silent) == len(run.workers):
        answers.open[TOGETHER] = _trained_instead(run)
    elif silent:
        answers.open[TOGETHER] = f"{listed(silent)} left no records of steps"
    elif synchronous and not any(met):
        why = "it trained synchronously, and workers that train alone would leave the same records"
        answers.open[TOGETHER] = why
    elif not synchronous and (why := sharing.steps_unrecorded(run)):
        answers.open[TOGETHER] = why
    else:
        # If a condition decides whether a call takes a step, counts of calls are no counts of steps.
        if not any(has_uncertain_counts(worker) for worker in run.workers):
            with_late = with_backups(run) if synchronous else run
            answers.checks.append(sharing.fair_shares(with_late, settings))
            answers.checks.append(sharing.workers_overlap(run, settings))
            if not synchronous:
                answers.checks.append(sharing.steps_interleave(run))
                answers.checks += [] if falls else [steps_numbered(run)]
        _name_what_is_not_shared(run, answers, seen=any(met), synchronous=synchronous)


def _trained_instead(run: Run) -> str:
    """Return why no steps of workers are known: only ps took steps, or no task recorded any."""
    others = [f"{task.name} made {counted(task.local_steps, 'step')}" for task in run.ps if task.windows]
    if others:
        return f"no worker is seen to train; {listed(others)}"
    return "the program leaves no records of its steps (psfleet_records writes them)"


def _name_what_is_not_shared(run: Run, answers: ProgramAnswers, *, seen: bool, synchronous: bool) -> None:
    unknown = unproven_sharing(run) if seen else unshared_variables(run)
    unknown |= dropped_gradients(run) if synchronous else {}
    answers.together = not unknown
    answers.observed = seen
    answers.open |= unknown | unrecorded_clauses(run, seen)
    if not seen:
        why = "its records show one global step, but not which ps each worker used"
        answers.open["all parameters were shared"] = why


def _check_coordinator(run: Run, settings: EvidenceSettings, answers: ProgramAnswers) -> None:
    """Add the check `fair_shares` to the answers if the coordinator recorded steps of the workers.

    If it recorded none, add to `answers.open` that it is not shown that the workers trained one model
    together.
    """
    if sum(run.contributions.values()):
        answers.checks.append(sharing.fair_shares(run, settings))
        answers.together = answers.observed = True
        return
    why = "no function that the coordinator gave them is seen to change a variable of the model"
    answers.open[TOGETHER] = why


def _name_falls(falls: _Falls, answers: ProgramAnswers) -> None:
    """Add to `answers.open`, for each worker in `falls`, that the model may lack steps of the worker.

    `falls` is the result of `_falls`; with a fall, `answers.together` becomes False. The global step falls,
    for example, if the program starts again from zero.
    """
    for name, (one, other) in falls.items():
        answers.together = False
        why = f"its global step fell from {one} to {other}"
        answers.open[f"the model holds all that {name} trained"] = why


def _falls(run: Run) -> _Falls:
    """Return {worker: (step before, step after)} for the first fall of the global step in its windows.

    Workers without a fall are left out.
    """
    steps = {
        worker.name: [step for window in worker.windows for step in (window.before, window.after)]
        for worker in run.workers
    }
    falls = {
        name: next(((one, other) for one, other in pairwise(of) if other < one), None)
        for name, of in steps.items()
    }
    return {name: fall for name, fall in falls.items() if fall}


def _check_traffic(run: Run, settings: EvidenceSettings, answers: ProgramAnswers) -> None:
    # The evaluator only receives checkpoints.
    names = [task.name for task in run.expected if task.job != EVALUATOR]
    if len(names) < 2:
        return
    counted_bytes = {name: run.endings[name].exchanged for name in names if name in run.endings}
    exchanged = {name: of for name, of in counted_bytes.items() if of is not None}
    if exchanged:
        answers.checks.append(tasks_exchanged(exchanged, settings.minimum_exchanged_bytes))
        if not answers.observed:
            what = "what the tasks exchanged were parameters and gradients"
            answers.open[what] = "bytes are counted, not read"
    if uncounted := listed(name for name in names if name not in exchanged):
        what = f"{uncounted} exchanged anything with the others"
        answers.open[what] = "systemd did not count the bytes"


def _check_learning(run: Run, settings: EvidenceSettings, answers: ProgramAnswers) -> None:
    reached = goals_reached(run, settings) if settings.goals else None
    if any(window.loss is not None for window in run.windows):
        fell = convergence.loss_fell(run, settings)
        answers.checks.append(convergence.loss_finite(run))
        stay = level_losses(run)
        answers.together = answers.together and not stay
        answers.open |= stay
        has_goal = settings.minimum_loss_reduction or settings.target_loss is not None
        if fell.ok is None or (not fell.ok and not has_goal and reached and reached.ok):
            # Such a program may continue from a model that has learned all there is, or be a GAN, which
            # reaches its goal whatever its losses do.
            answers.open[FALLEN] = fell.detail
        else:
            answers.checks.append(fell)
        answers.learned = bool(fell.ok)
    else:
        of_ps = any(window.loss is not None for task in run.ps for window in task.windows)
        who = "its workers" if of_ps else "the program"
        answers.open[FALLEN] = f"{who} recorded no losses"
    if reached:
        answers.checks.append(reached)
        answers.learned |= bool(reached.ok)
    else:
        why = "training_evidence_goals is empty"
        answers.open["the model is good enough for anything"] = why


def _name_ends(run: Run, answers: ProgramAnswers) -> None:
    """Add to `answers.open` what endings make doubtful.

    For a worker, chief or evaluator that neither ended by itself nor worked for a coordinator, that it had
    done its work; for a restarted task, that it went on where it had been. Tasks that failed or whose ending
    is unknown are left to `tasks_ended_well`.
    """
    for task in run.expected:
        ending = run.endings.get(task.name)
        if ending is None or not ending.well:
            continue
        # A worker's work for a coordinator was done when the coordinator ended by itself.
        served = run.coordinated and run.contributions.get(task.name)
        if not (ending.by_itself or served) and task.job in {"worker", "chief", EVALUATOR}:
            by_playbook = ending.in_words == ENDED_BY_PLAYBOOK
            why = "it still ran, and a playbook ended it" if by_playbook else f"it {ending.in_words}"
            answers.open[f"{task.name} had done its work"] = why
        if ending.restarts:
            why = f"it was started again {counted(ending.restarts, 'time')}"
            answers.open[f"{task.name} went on where it had been"] = why


def _in_words(ending: Ending) -> str:
    again = f", started again {counted(ending.restarts, 'time')}" if ending.restarts else ""
    return ending.in_words + again

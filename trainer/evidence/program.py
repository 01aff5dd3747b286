"""What can be said of a run of a program of one's own: how its tasks ended, and what it recorded itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from trainer.evidence import checks, convergence, sharing
from trainer.evidence.check import Check, Findings, counted, listed
from trainer.evidence.endings import Ending
from trainer.evidence.log_patterns import log_patterns_found
from trainer.evidence.run import Run
from trainer.evidence.settings import EvidenceSettings

TOGETHER = "the workers trained one model together"
_SHARING = {"tasks_exchanged", "fair_shares", "workers_overlap", "steps_interleave"}


@dataclass
class Answers:
    """The checks that this run allows, and what it does not show: each a clause and its reason.

    `together` and `learned` say whether something was asked that shows the one and the other.
    """

    checks: list[Check] = field(default_factory=list)
    open: list[tuple[str, str]] = field(default_factory=list)
    together: bool = False
    learned: bool = False

    @property
    def not_shown(self) -> tuple[str, ...]:
        """What the run does not show, in sentences."""
        return tuple(f"Not shown is that {what}: {why}." for what, why in self.open)


def judge_program(run: Run, settings: EvidenceSettings) -> Answers:
    """Ask what the run can answer, and name what it cannot."""
    answers = Answers([tasks_ended_well(run)])
    _ask_records(run, answers)
    _ask_sharing(run, settings, answers)
    _name_falls(run, answers)
    _ask_traffic(run, settings, answers)
    _ask_learning(run, settings, answers)
    if settings.log_patterns:
        answers.checks.append(log_patterns_found(run, settings.log_patterns))
    _name_ends(run, answers)
    return answers


def headline_of(run: Run, answers: Answers, verdict: str) -> str:
    """Say the verdict `proven`, `completed` or `not proven` in a sentence."""
    wrong = {check.check for check in answers.checks if check.ok is False}
    if verdict == "proven":
        workers = counted(len(run.workers), "worker")
        together = f"{workers} moved one global step together" if run.profile.shared else f"{workers} trained"
        return f"PROVEN: by the records of the program {together}, and it learned"
    if verdict == "completed":
        tasks = counted(len(run.expected), "task")
        what = next((what for what, _ in answers.open), "")
        return f"COMPLETED: the program ended well on {tasks}; not shown is that {what}"
    return f"NOT PROVEN: {_what_is_wrong(wrong)}"


def _what_is_wrong(wrong: set[str]) -> str:
    if "files_unchanged" in wrong:
        return "files of the run were changed after they were collected"
    if "tasks_ended_well" in wrong:
        return "the program did not end well on every task"
    if wrong & _SHARING:
        return f"nothing shows that {TOGETHER}"
    if wrong == {"log_patterns"}:
        return "the program's logs do not say what was asked for"
    return "the program's records speak against it"


def tasks_ended_well(run: Run) -> Check:
    """The leading task ended by itself with exit code 0; the others did, or were ended when the run was over.

    `systemd` told of it in tasks.json; a task that left no log was never started.
    """
    findings = Findings(lacking=list(run.endings.problems))
    lead = run.chief.name
    ended: dict[str, str] = {}
    for task in run.expected:
        ending = run.endings.of.get(task.name)
        if ending is None:
            if not run.endings.problems:
                findings.lacking.append(f"tasks.json does not tell how {task.name} ended")
            continue
        if not (run.folder / "logs" / f"{task.name}.out").exists():
            findings.lacking.append(f"{task.name} left no log: nothing shows that it ran")
        ended[task.name] = _in_words(ending)
        if not ending.well or (task.name == lead and not ending.by_itself):
            reason = f": {ending.reason.splitlines()[-1]}" if ending.reason else ""
            findings.wrong.append(f"{task.name} {ended[task.name]}{reason}")
    for records in run.all_tasks:
        if records.ending is not None and records.ending.event == "failed":
            findings.wrong.append(f"{records.name} recorded that it failed: {records.ending.text('reason')}")
    return findings.conclude(
        "tasks_ended_well",
        f"{lead} ended by itself, "
        + (listed(f"{name} {how}" for name, how in ended.items() if name != lead)),
        {"tasks": ended},
    )


def tasks_exchanged(exchanged: Mapping[str, tuple[int, int]], minimum: float) -> Check:
    """Every task whose bytes were counted received and sent more than one does that has no part in a run."""
    findings = Findings()
    for name, (received, sent) in exchanged.items():
        if min(received, sent) < minimum:
            findings.wrong.append(
                f"{name} received {received} bytes and sent {sent}, expected at least {minimum:g} each way"
            )
    return findings.conclude(
        "tasks_exchanged",
        listed(f"{name} received {_bytes(of[0])}, sent {_bytes(of[1])}" for name, of in exchanged.items()),
        {name: {"bytes_received": of[0], "bytes_sent": of[1]} for name, of in exchanged.items()},
    )


def goals_reached(run: Run, settings: EvidenceSettings) -> Check:
    """The last evaluation that any task recorded reaches every goal that people have set."""
    findings = Findings()
    evaluated = convergence.last_evaluation(run)
    if evaluated is None:
        findings.lacking.append("no task recorded an evaluation")
        return findings.conclude("goals_reached", "")
    goals = tuple(settings.goals.values())
    metrics = convergence.metrics_of(evaluated)
    convergence.compare(goals, metrics, findings, certain=True)
    return findings.conclude(
        "goals_reached",
        f"{convergence.in_words(goals, metrics)} (of global step {evaluated.integer('global_step')})",
        {"metrics": convergence.final_metrics(run)},
    )


def _ask_records(run: Run, answers: Answers) -> None:
    if any(task.records for task in run.tasks.values()):
        answers.checks += [checks.records_complete(run), checks.same_plan_and_release(run)]


def _ask_sharing(run: Run, settings: EvidenceSettings, answers: Answers) -> None:
    silent = [worker.name for worker in run.workers if not worker.windows]
    if not run.profile.shared:
        answers.together = not silent
        return
    if len(silent) == len(run.workers):
        why = "the program leaves no records of its steps (psfleet_records writes them)"
    elif silent:
        why = f"{listed(silent)} left no records of steps"
    elif any(told.get("replication") == "sync" for worker in run.workers for told in worker.settings):
        why = "it trained synchronously, and then each worker alone would leave the same records"
    elif not (why := sharing.steps_unrecorded(run)):
        answers.checks += [
            sharing.fair_shares(run, settings),
            sharing.workers_overlap(run, settings),
            sharing.steps_interleave(run),
        ]
        answers.together = True
        why = "its records tell of one global step, not which ps each worker used"
        answers.open.append(("all parameters were shared", why))
        return
    answers.open.append((TOGETHER, why))


def _name_falls(run: Run, answers: Answers) -> None:
    """Steps taken back, as by a program that began from zero again, are no part of the model that is left."""
    for worker in run.workers:
        steps = [step for window in worker.windows for step in (window.before, window.after)]
        fall = next(((one, other) for one, other in pairwise(steps) if other < one), None)
        if fall:
            answers.together = False
            why = f"its global step fell from {fall[0]} to {fall[1]}"
            answers.open.append((f"the model holds all that {worker.name} trained", why))


def _ask_traffic(run: Run, settings: EvidenceSettings, answers: Answers) -> None:
    if len(run.expected) < 2:
        return
    ended = {task.name: run.endings.of[task.name] for task in run.expected if task.name in run.endings.of}
    exchanged = {name: ending.exchanged for name, ending in ended.items() if ending.exchanged is not None}
    if exchanged:
        answers.checks.append(tasks_exchanged(exchanged, settings.minimum_exchanged_bytes))
        what = "what the tasks exchanged were parameters and gradients"
        answers.open.append((what, "bytes are counted, not read"))
    uncounted = [task.name for task in run.expected if task.name not in exchanged]
    if uncounted:
        what = f"{listed(uncounted)} exchanged anything with the others"
        answers.open.append((what, "systemd did not count the bytes"))


def _ask_learning(run: Run, settings: EvidenceSettings, answers: Answers) -> None:
    losses = [window.loss for worker in run.workers for window in worker.windows]
    if any(loss is not None for loss in losses):
        answers.checks += [convergence.loss_finite(run), convergence.loss_fell(run, settings)]
        answers.learned = True
    else:
        answers.open.append(("the loss fell", "the program recorded no losses"))
    if settings.goals:
        answers.checks.append(goals_reached(run, settings))
        answers.learned = True
    else:
        why = "training_evidence_goals asks for nothing"
        answers.open.append(("the model is good enough for anything", why))


def _name_ends(run: Run, answers: Answers) -> None:
    """Name what endings leave open: work that was cut off, and work that was begun anew."""
    for name in (task.name for task in run.expected):
        ending = run.endings.of.get(name)
        if ending is None or not ending.well:
            continue
        if not ending.by_itself and name.startswith(("worker", "chief")):
            why = "it still ran when the run was over, and train.yml ended it"
            answers.open.append((f"{name} had done its work", why))
        if ending.restarts:
            why = f"it was started again {counted(ending.restarts, 'time')}"
            answers.open.append((f"{name} went on where it had been", why))


def _in_words(ending: Ending) -> str:
    again = f", started again {counted(ending.restarts, 'time')}" if ending.restarts else ""
    if ending.alive:
        return "was still running" + again
    if ending.by_itself:
        return "ended by itself" + again
    if ending.failed:
        return f"failed with exit code {ending.exit_code}{again}"
    return f"was ended by train.yml{again}"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"

"""Checks of the records themselves: complete, of one plan, and of an orderly run."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise

from psfleet.evidence.absences import absences_in_words
from psfleet.evidence.answer import Findings, Good, counted, listed
from psfleet.evidence.card import DEPLOY, READ_THE_LOGS, TRAIN_ANEW, Card, Group, check
from psfleet.evidence.early_end import check_early_end, early_end_of, has_ended_early
from psfleet.evidence.endings import HOST, PLAYBOOK
from psfleet.evidence.lost_workers import lost_workers, lost_workers_in_words
from psfleet.evidence.ps_restores import ps_restores_in_words
from psfleet.evidence.reasons import in_a_line, join_failures, recorded_failure
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import SETTINGS as OF_REPLICATION
from psfleet.evidence.replication_rules import rules_of
from psfleet.evidence.task_records import Process
from trainer.contract.model_files import model_name
from trainer.contract.records import GOOD_ENDINGS
from trainer.contract.settings import PER_HOST

# Hosts may differ in PER_HOST. The model and the replication are compared by what they mean.
_JUDGED_APART = {*PER_HOST, *OF_REPLICATION, "model"}


@check(
    Card(
        Group.RECORDS,
        holds=(
            "each task of a model left readable records of this run, and no task's local steps have a gap; a "
            "program's task may leave none"
        ),
        fails=(
            "a file has records of another run, of another task, or of no task of the run; local steps are "
            "counted twice; a task finished after fewer steps than it recorded"
        ),
        unknown="a file or steps are missing, a line is unreadable, or a record appears twice",
        advice=(
            "Collect the run again while its hosts have the records: ansible-playbook train.yml -e "
            "run_id=ID. Records that a host has lost cannot be recovered, and the run cannot be proven "
            "without them."
        ),
        programs="if it leaves records",
    )
)
def records_complete(findings: Findings, run: Run) -> Good:
    """Check that every task of the run left readable, complete records, each record once.

    Figures: `records`, {task: number of its records}.
    """
    for task in run.tasks.values():
        findings.wrong += [f"{task.name}: its file has {what}" for what in task.foreign]
        findings.lacking += [f"cannot read {what}" for what in task.unreadable]
        if not (task.records or task.unreadable or task.foreign) and run.program is None:
            findings.lacking.append(f"{task.name}: its file holds no record")
        if task.repeated:
            findings.lacking.append(f"{task.name}: {counted(task.repeated, 'record')} twice in its file")
        for process in task.processes:
            if process.nonce is None and run.program is None:
                findings.lacking.append(f"{task.name}: its records do not begin with `started`")
            _follow_local_steps(task.name, process, findings)
    findings.wrong += [f"{name} left records, but is no task of this run" for name in run.unplanned]
    counts = {task.name: len(task.records) for task in run.tasks.values() if task.records}
    good = f"{counted(sum(counts.values()), 'record')} of {counted(len(counts), 'task')}"
    return good, {"records": counts}


@check(
    Card(
        Group.RECORDS,
        holds=(
            "every record names the plan in `plan.json` (and the program in `settings.json`), and all tasks "
            "ended with the same release"
        ),
        fails="a record names another plan or program, or releases differ",
        unknown="a task left no records, or was started by hand",
        advice=DEPLOY,
        programs="if it leaves records",
    )
)
def same_plan_and_release(findings: Findings, run: Run) -> Good:
    """Check that every record names the plan of plan.json, and that all tasks ended with the same release.

    A program's records must also name the program in settings.json. Figures: `plan_hash` of plan.json;
    `releases`, {task: release of its last record}.
    """
    releases: dict[str, str] = {}
    expected = run.plan.hash if run.plan else ""
    for task in (*run.all_tasks, *run.recorded_lost, *([run.evaluator] if run.evaluator.records else [])):
        if not task.records:
            if run.program is None:
                findings.lacking.append(f"{task.name} left no records")
            continue
        releases[task.name] = task.records[-1].release
        for plan_hash in sorted({record.plan_hash for record in task.records} - {expected}):
            if plan_hash:
                findings.wrong.append(f"{task.name} ran plan {plan_hash}, plan.json is {expected}")
            else:
                findings.lacking.append(f"{task.name} names no plan: it was started by hand")
        if run.program is not None:
            named = run.program.get("release") or "one without a release"
            findings.wrong += [
                f"{task.name} ran program {program}, settings.json names {named}"
                for program in sorted({record.text("program") for record in task.records})
                if program != named
            ]
    if len(set(releases.values())) > 1:
        listing = listed(f"{name} {release}" for name, release in releases.items())
        findings.wrong.append(f"releases differ: {listing}")
    elif "" in releases.values():
        findings.lacking.append("the tasks name no release: they were started by hand")
    release = next(iter(releases.values()), "")
    return f"plan {expected}, release {release}", {"plan_hash": expected, "releases": releases}


@check(
    Card(
        Group.RECORDS,
        holds=(
            "every worker had the model and the replication in `settings.json`; its last process had all "
            "other settings, too, except those that may differ by host; its steps have `push_every` batches"
        ),
        fails="a worker had other settings, or recorded other batches",
        unknown="a worker did not record its settings",
        advice=f"A task trained something else, perhaps because it was started by hand. {TRAIN_ANEW}",
    )
)
def same_settings(findings: Findings, run: Run) -> Good:
    """Check that every worker trained with the settings of the run.

    Figures: `model`, and the fields of the run's ReplicationRules.
    """
    model = str(run.training.get("model") or run.model)
    planned = len(run.plan.tasks_of("worker")) if run.plan else 0
    for worker in run.recorded_workers:
        if not worker.settings:
            findings.lacking.append(f"{worker.name} did not record its settings")
        for own in worker.settings:
            trained = str(own.get("model") or model)
            if trained != model:
                findings.wrong.append(f"{worker.name} trained {trained}, the run's model is {model}")
            try:
                rules = rules_of(own, planned)
            except ValueError as error:
                findings.wrong.append(f"{worker.name}: {error}")
                continue
            if replace(rules, workers=run.rules.workers) != run.rules:
                findings.wrong.append(f"{worker.name} trained {rules}, the run is {run.rules}")
        for process in worker.processes if run.program is None else ():
            findings.wrong += _batches_beside_settings(worker.name, process)
        # A resumed run may continue with other settings.
        for own in worker.settings[-1:]:
            findings.wrong += [
                f"{worker.name} had {name} {own[name]!r}, the run's settings ask for {wanted!r}"
                for name, wanted in run.training.items()
                if name in own and name not in _JUDGED_APART and own[name] != wanted
            ]
    return f"{model_name(model)}, {run.rules}", {"model": model_name(model), **asdict(run.rules)}


def _batches_beside_settings(name: str, process: Process) -> list[str]:
    """Return a list with one sentence about the first window whose batches contradict `push_every`.

    Return [] if no window does, or if the process did not record its settings. The window must have
    `push_every` batches for each of its steps. `name` is the worker's name.
    """
    settings = process.records[0].fields.get("settings")
    wanted = settings.get("push_every", 1) if isinstance(settings, Mapping) else None
    if type(wanted) is not int:
        return []
    return [
        f"{name} computed {window.batches} batches in {counted(window.steps, 'step')}, "
        f"its push_every is {wanted}"
        for window in process.windows
        if window.batches != wanted * window.steps
    ][:1]


@check(
    Card(
        Group.RECORDS,
        holds=(
            "every worker (or as many as `training_run_success` asks) ended at the last step in "
            "`settings.json`, or earlier because an evaluation met `stop_when`; the global step reached that "
            "step"
        ),
        fails=(
            "a task's last process failed; a worker was stopped, or was lost with its host; the last step "
            "was another one; the run ended early, and no evaluation met `stop_when`"
        ),
        unknown="a task did not record its end",
        advice=f"{READ_THE_LOGS} To resume a run that was stopped: ansible-playbook train.yml -e run_id=ID.",
    )
)
def ended_well(findings: Findings, run: Run) -> Good:
    """Check that every worker ended by itself, no task failed for good, and the last global step was reached.

    Workers without which the run may end well (`training_run_success`) are named, but not judged. Tasks that
    only serve must record their end, too; without it, their records are incomplete.
    Figures: `global_step` and `last_step` (reached and planned); `restarts`, {task: number}.
    """
    workers, failures, lost = {worker.name for worker in run.workers}, [], lost_workers(run)
    for task in (*run.workers, *run.ps, *run.servers):
        ending, by_systemd = task.ending, run.endings.get(task.name)
        if by_systemd and by_systemd.ended_by == HOST:
            findings.wrong.append(f"{task.name} {by_systemd.in_words}: {in_a_line(by_systemd.reason)}")
        elif given_up := run.given_up(task.name):
            reason = in_a_line(given_up.reason.partition("\n")[0])
            findings.wrong.append(f"{task.name} {given_up.in_words}: {reason}")
        elif ending is None:
            findings.lacking.append(f"{task.name} has no ending: it was killed, or its records are cut")
        elif ending.event == "failed":
            failures.append((task.name, f"failed {in_a_line(recorded_failure(task))}"))
        elif task.name in workers and ending.text("reason") not in GOOD_ENDINGS:
            step, reason = ending.integer("global_step"), ending.text("reason")
            by = " by a playbook" if by_systemd and by_systemd.ended_by == PLAYBOOK else ""
            findings.wrong.append(f"{task.name} ended at global step {step}: {reason}{by}")
    findings.wrong += join_failures(failures)
    check_early_end(run, findings)
    last_step, early = run.last_step, early_end_of(run)
    wanted = run.steps_requested
    may_differ = has_ended_early(run) and wanted is not None and last_step is not None and last_step < wanted
    if last_step is not None and wanted not in {None, last_step} and not may_differ:
        findings.wrong.append(f"the run was to end at global step {last_step}, its settings ask for {wanted}")
    if last_step is not None and run.global_steps < last_step:
        findings.wrong.append(f"the run ended at global step {run.global_steps} of {last_step}")
    restarts = {task.name: task.restarts for task in run.all_tasks if task.restarts}
    again = listed(f"{name} {counted(count, 'time')}" for name, count in restarts.items())
    finished = f"{len(run.workers)} of {len(run.with_lost)} workers" if lost else "all workers"
    good = f"{finished} finished, global step {run.global_steps} of {wanted if early else last_step}"
    good += f"; {early}" if early else ""
    good += f", as training_run_success {run.success} asks; {lost_workers_in_words(lost)}" if lost else ""
    good += f"; {away}" if (away := absences_in_words(run)) else ""
    # A worker that left and joined again ended in between, too.
    stops = len(run.chief.processes) - 1 - run.chief.restarts
    good += f", resumed {counted(stops, 'time')} after a stop" if stops > 0 else ""
    return good + (f", started again: {again}" if restarts else ""), {
        "global_step": run.global_steps,
        "last_step": last_step,
        "restarts": restarts,
    }


@check(
    Card(
        Group.RECORDS,
        holds=(
            "the model was initialised once, and checkpoints explain each time that the global step went back"
        ),
        fails=(
            "the model was initialised again after training had begun, or the global step went back without "
            "a checkpoint"
        ),
        unknown="the chief did not record how the model began",
        advice=(
            "The chief found no checkpoint when it started again. Check whether its disk is full, or "
            f"whether its state directory was removed. {TRAIN_ANEW}"
        ),
    )
)
def no_restart_from_zero(findings: Findings, run: Run) -> Good:
    """Check that training began once: no progress was discarded without a checkpoint to restore.

    Figures: `initialised`, how often; `restored`, the global step of each restore.
    """
    began = False
    for record in run.chief.records:
        if record.event == "initialised" and began:
            findings.wrong.append("the chief initialised the model anew after training had begun")
        began = began or record.event in {"step", "checkpointed", "restored"}
    restored = [record.integer("global_step") for record in run.chief.of("restored")]
    for worker in run.workers:
        for one, other in pairwise(worker.windows):
            if other.before < one.after and not any(step <= other.before for step in restored):
                back = f"{worker.name}: the global step went back from {one.after} to {other.before}"
                findings.add(f"{back}, and no checkpoint explains it", certain=run.chief.whole)
    begun = len(run.chief.of("initialised"))
    if not begun and not restored:
        findings.lacking.append("the chief did not record how the model began")
    good = f"restored from global step {restored[0] if restored else 0}"
    if begun:
        again = f", restored from a checkpoint {counted(len(restored), 'time')}" if restored else ""
        good = f"initialised once{again}"
    good += f"; {alone}" if (alone := ps_restores_in_words(run)) else ""
    return good, {"initialised": begun, "restored": restored}


def _follow_local_steps(name: str, process: Process, findings: Findings) -> None:
    """Check that a process's local steps count up from 0 without a gap, to the number in its `finished`.

    A step that is counted twice is a contradiction, a gap is missing evidence.
    """
    reached = 0
    for window in process.windows:
        first = window.local_step - window.steps
        if window.steps < 1 or first < reached:
            findings.wrong.append(f"{name}: local step {first + 1} comes after local step {reached}")
        elif first > reached:
            findings.lacking.append(f"{name}: local steps {reached + 1} to {first} are missing")
        reached = window.local_step
    ending = process.ending
    if ending is not None and ending.event == "finished" and "local_step" in ending.fields:
        final = ending.integer("local_step")
        if final < reached:
            findings.wrong.append(f"{name}: it finished after {final} local steps, and recorded {reached}")
    if process.local_steps > reached:
        findings.lacking.append(f"{name}: local steps {reached + 1} to {process.local_steps} are missing")

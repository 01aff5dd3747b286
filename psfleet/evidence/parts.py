"""The parts of a run that went on with other tasks: each part is judged with the tasks that it had."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from psfleet.evidence.answer import Answer, counted
from psfleet.evidence.endings import Ending
from psfleet.evidence.lost_workers import excuse_lost
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.task_records import Process, TaskRecords
from trainer.contract.plan import ClusterPlan
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask


@dataclass(frozen=True)
class PartPlan:
    """The plan of a part of a run, and what follows from it.

    A part is the time in which the run had the same tasks. `expected` are the tasks and `rules` the rules of
    replication by that plan; `endings` is {task: how it ended}, {} if unknown.
    """

    plan: ClusterPlan
    expected: tuple[RunTask, ...]
    rules: ReplicationRules
    endings: dict[str, Ending] = field(default_factory=dict)


def in_parts(run: Run, earlier: Sequence[PartPlan]) -> tuple[Run, ...]:
    """Return the parts of a run, in order; () if the run has always had the same tasks.

    `earlier` are the plans of all parts but the last. A process belongs to the part in which the chief of the
    same plan met it. A process of the evaluator meets nobody; it belongs to the part whose plan it names. The
    last part has the settings of the run itself. A plan under which the chief never trained has no part.
    """
    if not earlier or run.plan is None:
        return ()
    plans = [each.plan.hash for each in earlier] + [run.plan.hash]
    begun = _begun_parts(run.chief, plans)
    names = list(run.tasks)
    split = {name: _split(run.task(name), plans, begun) for name in names}
    evaluated = [(process, _named_part(process, plans)) for process in run.evaluator.processes]
    parts = []
    for place, of in enumerate(earlier):
        tasks = {name: _only(run.task(name), split[name], place) for name in names}
        part = Run(
            folder=run.folder,
            run_id=run.run_id,
            plan=of.plan,
            rules=of.rules,
            expected=of.expected,
            tasks=tasks,
            evaluator=_only(run.evaluator, evaluated, place),
            endings=of.endings,
            success=run.success,
            is_last=False,
        )
        parts.append(part)
    tasks = {name: _only(run.task(name), split[name], len(earlier)) for name in names}
    last = replace(run, tasks=tasks, evaluator=_only(run.evaluator, evaluated, len(earlier)))
    parts = [part for part in (*parts, last) if part.chief.of("peers_ready")]
    return tuple(_with_edges(parts))


def _named_part(process: Process, plans: Sequence[str]) -> int:
    """Return the index of the last plan that the process names; the last index if it names none of them.

    `plans` are the hashes of the parts' plans, in order.
    """
    of = process.records[0].plan_hash
    return next((place for place in reversed(range(len(plans))) if plans[place] == of), len(plans) - 1)


def _begun_parts(chief: TaskRecords, plans: Sequence[str]) -> dict[int | None, int]:
    """Return {nonce: index of the part} for each process of the chief.

    `plans` are the hashes of the parts' plans, in order.
    """
    places = _places(chief.processes, plans)
    return {process.nonce: place for process, place in zip(chief.processes, places, strict=True)}


def _places(processes: Iterable[Process], plans: Sequence[str]) -> Iterator[int]:
    """Yield for each process, in order, the index of its part: the next part with the process's plan.

    `plans` are the hashes of the parts' plans, in order. A process with an unknown plan, or with the plan of
    an earlier part only, belongs to the part of the previous process.
    """
    place = 0
    for process in processes:
        of = process.records[0].plan_hash
        place = next((later for later in range(place, len(plans)) if plans[later] == of), place)
        yield place


def _split(
    task: TaskRecords, plans: Sequence[str], begun: dict[int | None, int]
) -> list[tuple[Process, int]]:
    """Return (process, index of its part) for each process of a task.

    This is the part of the first known process of the chief that it met, if both have the same plan; else the
    part by its plan (`_places`). `begun` is the result of `_begun_parts`.
    """
    split = []
    for process, by_plan in zip(task.processes, _places(task.processes, plans), strict=True):
        met = (record.integers("worker_nonces").get("worker0") for record in process.records)
        known = [begun[nonce] for nonce in met if nonce is not None and nonce in begun]
        fits = known and plans[known[0]] == process.records[0].plan_hash
        split.append((process, known[0] if fits else by_plan))
    return split


def _only(task: TaskRecords, split: Sequence[tuple[Process, int]], part: int) -> TaskRecords:
    records = tuple(record for process, place in split if place == part for record in process.records)
    return replace(task, records=records)


def _with_edges(parts: Sequence[Run]) -> Iterator[Run]:
    """Yield each part with the global step and the contributions at its beginning.

    Except for the last, each part also gets its end (`until`), and its lost workers are excused.
    """
    start = None
    for place, part in enumerate(parts):
        following = parts[place + 1] if place + 1 < len(parts) else None
        end = next(iter(following.chief.of("restored")), None) if following else None
        if start is not None:
            part = replace(part, first_step=start.integer("global_step"), counted_before=_counts(start))  # noqa: PLW2901
        if following is not None:
            part = replace(part, until=end, tasks=_undone(part, end))  # noqa: PLW2901
            part = excuse_lost(part)  # noqa: PLW2901
        yield part
        start = end


def _counts(restored: Record) -> dict[str, int] | None:
    return restored.integers("contributions") or None


def _undone(part: Run, end: Record | None) -> dict[str, TaskRecords]:
    """Return {task: its records} of a part that ended with the restore `end`.

    If the restore undid the last steps of the part, the restore is added to the chief's records. Without such
    steps or with `end` None, the records are returned unchanged.
    """
    tasks = dict(part.tasks)
    beyond = max((window.after for window in part.windows), default=0)
    if end is not None and part.chief.records and beyond > end.integer("global_step"):
        own = part.chief.records[-1]
        last = replace(end, pid=own.pid, plan_hash=own.plan_hash)
        tasks[part.chief.name] = replace(part.chief, records=(*part.chief.records, last))
    return tasks


def judged_in_parts(question: Callable[[Run], Answer], run: Run) -> Answer:
    """Ask `question`, a check, about each part of a run, and return one answer for all parts.

    It is False if it is False for one part, else None if it is None for one part, else True; its detail names
    the parts with this answer. For a run without parts, return the answer about the run.
    """
    if not run.parts:
        return question(run)
    answers = [question(part) for part in run.parts]
    states = [answer.ok for answer in answers]
    ok = False if False in states else None if None in states else True
    named = [
        f"part {number} ({counted(len(part.workers), 'worker')}): {answer.detail}"
        for number, (part, answer) in enumerate(zip(run.parts, answers, strict=True), start=1)
        if answer.ok is ok
    ]
    return Answer(answers[0].check, ok, "; ".join(named), {"parts": [answer.evidence for answer in answers]})

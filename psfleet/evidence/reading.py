"""Reads a run's folder. No content makes this fail: the `Run` lists what cannot be used."""

import errno
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from psfleet.carry.earlier_files import lives
from psfleet.evidence.endings import read_endings
from psfleet.evidence.lost_workers import excuse_lost
from psfleet.evidence.parts import PartPlan, in_parts
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules, rules_of
from psfleet.evidence.run_manifest import Manifest
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.task_records import TaskRecords
from psfleet.evidence.untrusted_files import read_bytes, read_json, write_whole
from psfleet.run.settings_file import RunSettings
from trainer.contract.model_card import Card
from trainer.contract.plan import ClusterPlan
from trainer.contract.records import Record, records_in
from trainer.contract.run_tasks import RunTask, run_tasks
from trainer.contract.settings import TrainingSettings
from trainer.contract.task_names import CHIEF, EVALUATOR_NAME

_EVENTS = "events"
# Thresholds that older runs noted. Now each model has its goals on its card.
_OLDER_THRESHOLDS = {
    "target_accuracy",
    "weight_tolerance",
    "bias_tolerance",
    "error_tolerance",
    "auc_tolerance",
}
# The readable records of a task, and descriptions of its unreadable parts.
_File = tuple[list[Record], tuple[str, ...]]
# A record has about 450 bytes. These limits suffice for a task that trains for six weeks, and for all tasks
# of a run.
MOST_OF_A_TASK, MOST_OF_A_RUN = 64_000_000, 256_000_000


def read_run(folder: Path, run_id: str | None = None) -> Run:
    """Return the run in a folder, from plan.json, settings.json, tasks.json, and events/*.jsonl.

    Files of earlier collections (`earlier/`) count, too. Only the records of `run_id` count. Without
    `run_id`, those with the folder's name count, or those with the most common id if no record has that name,
    since people rename folders. If the folder, plan.json or settings.json is missing or damaged, `problem` of
    the run says so.
    """
    if not folder.is_dir():
        return Run(folder, run_id or folder.name, problem=f"{folder} is not a folder")
    content, unread = _json(folder / "settings.json")
    asked, problems = RunSettings.from_valid_fields(content)
    training, program = asked.training, asked.program
    # Files that begin with a dot are a desktop's, such as ._worker0.jsonl.
    files = _read_all({path.name for of in lives(folder, _EVENTS) for path in of.glob("[!.]*.jsonl")}, folder)
    run_id = run_id or _run_id(folder, [record for records, _ in files.values() for record in records])
    plan, rules, expected, problem = None, ReplicationRules(), tuple[RunTask, ...](), ""
    own_card: Card | None = None
    earlier: list[PartPlan] = []
    try:
        plan = _plan(folder / "plan.json")
        if unread and os.path.lexists(folder / "settings.json"):
            raise ValueError(f"settings.json: {unread}")
        if content is not None and not isinstance(content, Mapping):
            raise ValueError("settings.json: not a JSON object")
        needed = ("program", "training", "success", "card")
        if found := next((problems[each] for each in needed if each in problems), None):
            raise ValueError(f"settings.json: {found}")
        own_card = Card.from_json(asked.card) if asked.card and program is None else None
        chief, _ = files.get(CHIEF, ([], ()))
        rules, expected = _rules_and_tasks(plan, training, chief, program=program is not None)
        earlier = list(_earlier_parts(folder / "plan.json", training, chief)) if program is None else []
    except ValueError as error:
        problem = str(error)
    # A user's program may leave no records; tasks of a built-in model always do.
    if program is None:
        absent = [f"{task.name}.jsonl" for task in expected if task.name not in files]
        files |= _read_all(absent, folder)
    # The evaluator is in no plan, but belongs to every run of a built-in model.
    evaluator = files.pop(EVALUATOR_NAME, None) if program is None else None
    names = {task.name for of in (expected, *(part.expected for part in earlier)) for task in of}
    # An empty file that belongs to no task is not psfleet's.
    files = {name: file for name, file in files.items() if any(file) or name in names}
    content, unread = _json(folder / "tasks.json")
    endings, unusable_endings = ({}, [f"tasks.json: {unread}"]) if unread else read_endings(content)
    run = Run(
        folder=folder,
        run_id=run_id,
        plan=plan,
        problem=problem,
        training=training,
        program=program,
        own_card=own_card,
        rules=rules,
        expected=expected,
        tasks={name: _task(name, file, run_id) for name, file in files.items()},
        evaluator=_task(EVALUATOR_NAME, evaluator or ([], ()), run_id),
        unplanned=tuple(name for name in files if name not in names) if expected else (),
        endings=endings,
        unusable_endings=unusable_endings,
        success=asked.success,
    )
    run = excuse_lost(run) if expected else run
    return replace(run, parts=in_parts(run, earlier))


def read_settings(folder: Path) -> EvidenceSettings:
    """Return the thresholds in settings.json; a missing threshold or a missing file has the defaults.

    Raises ValueError naming the file, and every invalid value or why the file cannot be read.
    """
    path = folder / "settings.json"
    content, problem = _json(path)
    if content is not None and not isinstance(content, Mapping):
        problem = "not a JSON object"
    if problem and os.path.lexists(path):
        raise ValueError(f"{path}: {problem}")
    asked, problems = RunSettings.from_valid_fields(content)
    try:
        if "evidence" in problems:
            raise ValueError(problems["evidence"])
        noted = asked.evidence or {}
        known = {name: noted[name] for name in noted if name not in _OLDER_THRESHOLDS}
        return EvidenceSettings.from_mapping(known, "evidence.")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def record_settings(folder: Path, settings: EvidenceSettings) -> None:
    """Record the thresholds of the first verdict in settings.json, for later judges without Ansible.

    Nothing changes if thresholds are recorded already, or if the file is missing or cannot be read.
    manifest.json is updated if it matched the file before. Raises OSError if writing fails.
    """
    path = folder / "settings.json"
    content, problem = _json(path)
    if problem or not isinstance(content, dict) or "evidence" in content:
        return
    try:
        manifest = Manifest.read(folder)
        matched = manifest.holds(folder, path.name)
    except (OSError, ValueError):
        matched = False
    whole = {**content, "evidence": settings.as_dict()}
    write_whole(path, f"{json.dumps(whole, indent=4)}\n".encode())
    if matched:
        manifest.with_file(folder, path.name).write(folder)


def _rules_and_tasks(
    plan: ClusterPlan, training: Mapping[str, object], chief: list[Record], *, program: bool
) -> tuple[ReplicationRules, tuple[RunTask, ...]]:
    """Return (rules by which the workers trained, tasks of the run) from the plan and the settings.

    `training` are the model's settings; if they lack the replication, those in the last `started` of the
    chief's records (`chief`) count. A program has no rules but its number of workers. Raises ValueError if
    the settings are invalid, or if the plan has too few tasks: a model needs a worker and a ps, a program a
    worker or a chief.
    """
    workers, leads = len(plan.tasks_of("worker")), len(plan.tasks_of("chief"))
    if program:
        if not workers + leads:
            raise ValueError("plan.json: it has no worker and no chief")
        return ReplicationRules(workers=workers + leads), run_tasks(plan, TrainingSettings(), program=True)
    if not workers or not plan.tasks_of("ps"):
        raise ValueError("plan.json: it has no worker or no ps")
    source = "settings.json"
    if "replication" not in training:
        started = [record for record in chief if record.event == "started"]
        training = _object(started[-1].fields, "settings") if started else {}
        source = f"{CHIEF}'s settings"
    try:
        rules = rules_of(training, workers)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    taking_part = TrainingSettings(replication=rules.replication, existing_servers=rules.existing_servers)
    return rules, run_tasks(plan, taking_part, program=False)


def _earlier_parts(path: Path, training: Mapping[str, object], chief: list[Record]) -> Iterator[PartPlan]:
    """Yield a PartPlan for each entry of `earlier` in plan.json (`path`); nothing without entries.

    These are the parts before the last, the oldest first. Raises ValueError for an invalid entry.
    """
    content, _ = _json(path)
    earlier = content.get("earlier", []) if isinstance(content, Mapping) else []
    if not isinstance(earlier, list):
        raise ValueError("plan.json: earlier is not a list")
    for part in earlier:
        plan = _object(part, "plan")
        try:
            planned = ClusterPlan.from_json(plan)
        except ValueError as error:
            raise ValueError(f"plan.json, an earlier plan: {error}") from error
        rules, expected = _rules_and_tasks(planned, training, chief, program=False)
        endings, unusable = read_endings(part.get("endings"))
        yield PartPlan(planned, expected, rules, {} if unusable else endings)


def _plan(path: Path) -> ClusterPlan:
    content, problem = _json(path)
    try:
        if problem or not isinstance(content, Mapping):
            raise ValueError(problem or "not a JSON object")
        return ClusterPlan.from_json(content)
    except ValueError as error:
        raise ValueError(f"plan.json: {error}") from error


def _json(path: Path) -> tuple[object, str]:
    try:
        return read_json(path), ""
    except OSError as error:
        return None, str(error.strerror)
    except ValueError as error:
        return None, f"not JSON ({error})"


def _object(content: object, name: str) -> Mapping[str, object]:
    value = content.get(name) if isinstance(content, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _read_all(names: Iterable[str], folder: Path) -> dict[str, _File]:
    """Return {task: (records, problems)} from the files `names`, such as "worker0.jsonl".

    The records come from events/ of the folder and of its earlier collections, the oldest first; a record
    that an earlier file had is not added again. A problem is a sentence about a file or a line that cannot be
    read; the other records still count. A missing file is a problem, too.
    """
    files: dict[str, _File] = {}
    left = MOST_OF_A_RUN
    for name in sorted(names):
        records: list[Record] = []
        complaints: list[str] = []
        for path in lives(folder, f"{_EVENTS}/{name}"):
            shown = path.relative_to(folder).as_posix()
            try:
                content = read_bytes(path, min(left, MOST_OF_A_TASK))
            except OSError as error:
                beyond = f" (of all tasks {MOST_OF_A_RUN:,})" if error.errno == errno.EFBIG else ""
                complaints.append(f"{shown}: {error.strerror}{beyond}")
                continue
            left -= len(content)
            found, unread = records_in(content, shown)
            # An earlier file of the same life may have records that the later one has, too.
            known = {_identity(record) for record in records}
            records += [record for record in found if _identity(record) not in known] if known else found
            complaints += unread
        files[name.removesuffix(".jsonl")] = records, tuple(complaints)
    return files


def _run_id(folder: Path, records: list[Record]) -> str:
    counts = Counter(record.run_id for record in records)
    name = folder.resolve().name
    return name if not counts or name in counts else counts.most_common(1)[0][0]


def _task(name: str, file: _File, run_id: str) -> TaskRecords:
    records, unreadable = file
    once: dict[str, Record] = {}
    strangers: Counter[tuple[str, str]] = Counter()
    for record in records:
        if (record.run_id, record.task) == (run_id, name):
            once.setdefault(_identity(record), record)
        else:
            strangers[record.run_id, record.task] += 1
    foreign = tuple(f"{count} records of {task} of run {of!r}" for (of, task), count in strangers.items())
    repeated = len(records) - strangers.total() - len(once)
    return TaskRecords(name, tuple(once.values()), unreadable, foreign, repeated)


def _identity(record: Record) -> str:
    fields = json.dumps(dict(record.fields), sort_keys=True)
    return f"{record.pid} {record.monotonic} {record.event} {fields}"

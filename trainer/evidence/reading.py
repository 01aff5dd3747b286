"""Read a run's folder. Nothing in it makes this fail: what cannot be used is said in the `Run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.evidence.endings import Endings
from trainer.evidence.manifest import Manifest
from trainer.evidence.profile import Profile, profile_of
from trainer.evidence.run import CHIEF, Run, TaskRecords
from trainer.evidence.settings import EvidenceSettings
from trainer.evidence.whole_file import read_whole, refuse_special, write_whole
from trainer.plan import ClusterPlan
from trainer.records import EVALUATOR_NAME, Record, events_file, read_records
from trainer.run_tasks import RunTask, run_tasks


@dataclass(frozen=True)
class _File:
    name: str
    records: tuple[Record, ...]
    unreadable: tuple[str, ...]


@dataclass(frozen=True)
class _Settings:
    """What settings.json says of the run; `problem` where that cannot be used."""

    training: Mapping[str, object]
    program: Mapping[str, object] | None
    problem: str


def read_run(folder: Path, run_id: str | None = None) -> Run:
    """Read plan.json, settings.json, tasks.json and events/*.jsonl of a run's folder.

    The records of `run_id` count; without it those of the folder's name, or of the commonest id where no
    record has that: people rename.
    """
    if not folder.is_dir():
        return Run(folder, run_id or folder.name, problem=f"{folder} is not a folder")
    settings = _settings(folder / "settings.json")
    plan, problem = _plan(folder / "plan.json")
    found = {path.stem: _read(path, folder) for path in sorted((folder / "events").glob("*.jsonl"))}
    profile = Profile()
    expected: tuple[RunTask, ...] = ()
    if plan is not None:
        problem = settings.problem or _missing_jobs(plan, settings)
        if not problem:
            profile, expected, problem = _who_takes_part(plan, settings, found.get(CHIEF))
    names = {task.name for task in expected}
    files = dict(found)
    if settings.program is None:
        # A program of one's own leaves records where it likes to; our own tasks always do.
        files |= {
            task.name: _read(events_file(folder, task.job, task.index), folder)
            for task in expected
            if task.name not in found
        }
    run_id = run_id or _run_id(folder, list(found.values()))
    # It is no task of any plan, but has its place in every run of our own models.
    evaluator = files.pop(EVALUATOR_NAME, None) if settings.program is None else None
    return Run(
        folder=folder,
        run_id=run_id,
        plan=plan,
        problem=problem,
        training=settings.training,
        program=settings.program,
        profile=profile,
        expected=expected,
        tasks={name: _task(file, run_id) for name, file in files.items()},
        evaluator=_task(evaluator, run_id) if evaluator else TaskRecords(EVALUATOR_NAME),
        unplanned=tuple(name for name in files if name not in names) if expected else (),
        endings=_endings(folder / "tasks.json"),
    )


def read_settings(folder: Path) -> EvidenceSettings:
    """Return the thresholds that settings.json asks for, the defaults where it asks for none.

    Raises ValueError naming the file and every value that cannot be used.
    """
    path = folder / "settings.json"
    content, problem = _json(path)
    if problem and path.exists():
        raise ValueError(f"{path}: {problem}")
    try:
        return EvidenceSettings.from_mapping(_object(content, "evidence"), "evidence.")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def keep_settings(folder: Path, settings: EvidenceSettings) -> None:
    """Note in settings.json what the run was first judged by, for whoever judges it again without Ansible.

    What settings.json says already stays, and so does one that cannot be read. The manifest follows where it
    vouched for the file before. Raises OSError.
    """
    path = folder / "settings.json"
    content, problem = _json(path)
    if problem or not isinstance(content, dict) or "evidence" in content:
        return
    manifest = _manifest_of(path)
    whole = {**content, "evidence": settings.as_dict()}
    write_whole(path, f"{json.dumps(whole, indent=4)}\n".encode())
    if manifest is not None:
        manifest.with_file(folder, path.name).write(folder)


def _manifest_of(file: Path) -> Manifest | None:
    """Return the manifest of the file's folder where the file is what it says; else None."""
    try:
        manifest = Manifest.read(file.parent)
        return manifest if manifest.holds(file.parent, file.name) else None
    except (OSError, ValueError):
        return None


def _settings(path: Path) -> _Settings:
    content, problem = _json(path)
    program = content.get("program") if isinstance(content, Mapping) else None
    if problem and path.exists():
        problem = f"settings.json: {problem}"
    elif program is not None and not isinstance(program, Mapping):
        program, problem = None, f"settings.json: program is {program!r}; expected an object or null"
    else:
        problem = ""
    return _Settings(_object(content, "training"), program, problem)


def _who_takes_part(
    plan: ClusterPlan, settings: _Settings, chief: _File | None
) -> tuple[Profile, tuple[RunTask, ...], str]:
    """Return how the run's workers trained, which tasks it has, and why that cannot be told."""
    if settings.program is not None:
        workers = len(plan.tasks_of("worker")) + len(plan.tasks_of("chief"))
        return Profile(workers=workers), run_tasks(plan, {}, program=True), ""
    training, source = settings.training, "settings.json"
    if "replication" not in training:
        started = [record for record in (chief.records if chief else ()) if record.event == "started"]
        training = _object(started[-1].fields, "settings") if started else {}
        source = f"{CHIEF}'s settings"
    try:
        profile = profile_of(training, len(plan.tasks_of("worker")))
    except ValueError as error:
        return Profile(), (), f"{source}: {error}"
    taking_part = {
        "replication": profile.replication,
        "existing_servers": profile.existing_servers,
    }
    return profile, run_tasks(plan, taking_part, program=False), ""


def _plan(path: Path) -> tuple[ClusterPlan | None, str]:
    content, problem = _json(path)
    if problem:
        return None, f"plan.json: {problem}"
    if not isinstance(content, Mapping):
        return None, "plan.json: not a JSON object"
    try:
        return ClusterPlan.from_json(content), ""
    except ValueError as error:
        return None, f"plan.json: {error}"


def _missing_jobs(plan: ClusterPlan, settings: _Settings) -> str:
    if settings.program is None:
        has_all = plan.tasks_of("worker") and plan.tasks_of("ps")
        return "" if has_all else "plan.json: it has no worker or no ps"
    leads = plan.tasks_of("chief") or plan.tasks_of("worker")
    return "" if leads else "plan.json: it has no worker and no chief"


def _endings(path: Path) -> Endings:
    content, problem = _json(path)
    return Endings(problems=(f"tasks.json: {problem}",)) if problem else Endings.from_json(content)


def _json(path: Path) -> tuple[object, str]:
    try:
        return json.loads(read_whole(path)), ""
    except OSError as error:
        return None, str(error.strerror)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})"


def _object(content: object, name: str) -> Mapping[str, object]:
    value = content.get(name) if isinstance(content, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _read(path: Path, folder: Path) -> _File:
    try:
        refuse_special(path)
    except OSError as error:
        return _File(path.stem, (), (f"{path.relative_to(folder)}: {error.strerror}",))
    records, complaints = read_records(path)
    unreadable = tuple(complaint.removeprefix(f"{folder}/") for complaint in complaints)
    return _File(path.stem, tuple(records), unreadable)


def _run_id(folder: Path, files: list[_File]) -> str:
    counts = Counter(record.run_id for file in files for record in file.records)
    if not counts or folder.resolve().name in counts:
        return folder.resolve().name
    return counts.most_common(1)[0][0]


def _task(file: _File, run_id: str) -> TaskRecords:
    own: list[Record] = []
    seen: set[str] = set()
    strangers: Counter[tuple[str, str]] = Counter()
    repeated = 0
    for record in file.records:
        if record.run_id != run_id or record.task != file.name:
            strangers[record.run_id, record.task] += 1
            continue
        fields = json.dumps(dict(record.fields), sort_keys=True)
        identity = f"{record.pid} {record.monotonic} {record.event} {fields}"
        if identity in seen:
            repeated += 1
            continue
        seen.add(identity)
        own.append(record)
    foreign = tuple(
        f"{count} records of {task} of run {other!r}" for (other, task), count in strangers.items()
    )
    return TaskRecords(file.name, tuple(own), file.unreadable, foreign, repeated)

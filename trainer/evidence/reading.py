"""Read a run's folder. Nothing in it makes this fail: what cannot be used is said in the `Run`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.evidence.run import Run, TaskRecords
from trainer.evidence.settings import EvidenceSettings
from trainer.plan import ClusterPlan
from trainer.records import Record, events_file, read_records


@dataclass(frozen=True)
class _File:
    name: str
    records: tuple[Record, ...]
    unreadable: tuple[str, ...]


def read_run(folder: Path, run_id: str | None = None) -> Run:
    """Read plan.json, settings.json and events/*.jsonl of a run's folder; the records of `run_id` count.

    Without `run_id` it is the folder's name, or the commonest id where no record has that: people rename.
    """
    if not folder.is_dir():
        return Run(folder, run_id or folder.name, None, plan_problem=f"{folder} is not a folder")
    plan, problem = _plan(folder / "plan.json")
    expected = [events_file(folder, task.job, task.index) for task in plan.tasks] if plan else []
    extra = set((folder / "events").glob("*.jsonl")) - set(expected)
    files = [_read(path, folder) for path in (*expected, *sorted(extra))]
    run_id = run_id or _run_id(folder, files)
    return Run(
        folder=folder,
        run_id=run_id,
        plan=plan,
        plan_problem=problem,
        training=_object(_json(folder / "settings.json")[0], "training"),
        tasks={file.name: _task(file, run_id) for file in files},
        unplanned=tuple(sorted(path.stem for path in extra)) if plan else (),
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

    What settings.json says already stays, and so does one that cannot be read. Raises OSError.
    """
    path = folder / "settings.json"
    content, problem = _json(path)
    if problem or not isinstance(content, dict) or "evidence" in content:
        return
    new = path.with_name(f".{path.name}.new")
    whole = {**content, "evidence": settings.as_dict()}
    new.write_text(json.dumps(whole, indent=4) + "\n", encoding="utf-8")
    new.replace(path)


def _plan(path: Path) -> tuple[ClusterPlan | None, str]:
    content, problem = _json(path)
    if problem:
        return None, f"plan.json: {problem}"
    if not isinstance(content, Mapping):
        return None, "plan.json: not a JSON object"
    try:
        plan = ClusterPlan.from_json(content)
    except ValueError as error:
        return None, f"plan.json: {error}"
    if not plan.tasks_of("worker") or not plan.tasks_of("ps"):
        return None, "plan.json: it has no worker or no ps"
    return plan, ""


def _json(path: Path) -> tuple[object, str]:
    try:
        return json.loads(path.read_bytes()), ""
    except OSError as error:
        return None, str(error.strerror)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON ({error})"


def _object(content: object, name: str) -> Mapping[str, object]:
    value = content.get(name) if isinstance(content, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _read(path: Path, folder: Path) -> _File:
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

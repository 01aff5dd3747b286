"""Run folders of a user's program, from real tasks that a launcher ran on loopback."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.psfleet.evidence.run_folders import plan_of
from tests.trainer.program.launched import RUN_ID, Tasks
from trainer.contract.exit_codes import STOPPED
from trainer.contract.plan import ClusterPlan, Job

PROGRAM = Path(__file__).with_name("recording_program.py")
# It records nothing itself.
TUTORIAL = Path(__file__).with_name("tutorial_program.py")
# It trains together for a part of the run only.
PHASES = Path(__file__).with_name("programs") / "phases.py"
# What a folder of a run holds when systemd has counted what each task said to the others.
BYTES = {"bytes_received": 500_000, "bytes_sent": 400_000}


def run_program(
    folder: Path, *arguments: str, program: Path = PROGRAM, tensorflow1: bool = False, **jobs: int
) -> Path:
    """Run a program on a ps and two workers, or other `jobs`; return the run's folder.

    What serves is ended as train.yml does: the ps, and the workers of a chief, which needs no flags. With
    `tensorflow1`, the workers of a chief train. A program that knows nothing of psfleet is observed.
    """
    (folder / "hosts").mkdir(parents=True)
    with Tasks(folder / "hosts", program, **({"ps": 1, "worker": 2} | jobs)) as tasks:
        tasks.observed, tasks.flags = program != PROGRAM, "chief" not in tasks.cluster
        plan = _plan(tasks.cluster)
        tasks.arguments, tasks.tensorflow1 = arguments, tensorflow1
        tasks.environment = {"PSFLEET_PLAN_HASH": plan.hash}
        tasks.start()
        serves = ("ps",) if tasks.flags or tensorflow1 else ("ps", "worker")
        trainers = [name for name in tasks.names if not name.startswith(serves)]
        codes = tasks.wait(*trainers) | tasks.stop(*(name for name in tasks.names if name not in trainers))
        return _run_folder(tasks, plan, codes)


def fork_program(folder: Path, *arguments: str, program: Path = PROGRAM, ps: int = 1) -> Path:
    """Run a program on `ps` and two workers as `run_program` does, without the launcher, and much cheaper.

    The tasks are forks of one process, which has imported TensorFlow.
    """
    (folder / "hosts").mkdir(parents=True)
    tasks = Tasks(folder / "hosts", program, ps=ps, worker=2)
    tasks.observed, tasks.arguments = program != PROGRAM, arguments
    plan = _plan(tasks.cluster)
    tasks.environment = {"PSFLEET_PLAN_HASH": plan.hash}
    return _run_folder(tasks, plan, tasks.run_forked())


def _plan(cluster: Mapping[str, Sequence[str]]) -> ClusterPlan:
    jobs: tuple[Job, ...] = ("chief", "ps", "worker")
    return plan_of(*((job, target) for job in jobs for target in cluster.get(job, [])))


def _run_folder(tasks: Tasks, plan: ClusterPlan, codes: Mapping[str, int]) -> Path:
    """What train.yml collects of these tasks, beside the folder of their hosts."""
    run = tasks.folder.parent / RUN_ID
    for part in ("events", "logs"):
        (run / part).mkdir(parents=True)
    for name in tasks.names:
        shutil.copy(tasks.output_file(name), run / "logs")
        for events in (tasks.directory(name) / "events").glob("*.jsonl"):
            shutil.copy(events, run / "events")
    file, arguments = str(tasks.program), list(tasks.arguments)
    told = {"release": "c0ffee", "file": file, "arguments": arguments, "flags": tasks.flags}
    (run / "plan.json").write_text(json.dumps(plan.to_json()))
    (run / "settings.json").write_text(json.dumps({"training": {}, "program": told}))
    (run / "tasks.json").write_text(json.dumps([ending(name, code, **BYTES) for name, code in codes.items()]))
    return run


def ending(name: str, code: int, **more: object) -> dict[str, Any]:
    """An entry of tasks.json: 143 is what systemd takes for a good end by SIGTERM."""
    entry = {"name": name, "alive": False, "failed": code not in {0, STOPPED}, "exit_code": code}
    return {**entry, "restarts": 0, "reason": "", "bytes_received": None, "bytes_sent": None, **more}


def endings(run: Path) -> list[dict[str, Any]]:
    """What tasks.json holds."""
    content: list[dict[str, Any]] = json.loads((run / "tasks.json").read_text())
    return content


def end(run: Path, /, name: str, **changes: object) -> None:
    """Let a task have ended otherwise."""
    changed: Sequence[Mapping[str, Any]] = [
        entry | changes if entry["name"] == name else entry for entry in endings(run)
    ]
    (run / "tasks.json").write_text(json.dumps(changed))


def keep_no_records(run: Path) -> None:
    """Let the program be one that records nothing."""
    shutil.rmtree(run / "events")

"""Run folders of a user's program, from real tasks that a launcher ran on loopback."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.psfleet.evidence.run_folders import plan_of
from tests.trainer.program.launched import RUN_ID, Tasks
from trainer.contract.exit_codes import STOPPED
from trainer.contract.plan import Job

PROGRAM = Path(__file__).with_name("recording_program.py")
# It records nothing itself.
TUTORIAL = Path(__file__).with_name("tutorial_program.py")
# What a folder of a run holds when systemd has counted what each task said to the others.
BYTES = {"bytes_received": 500_000, "bytes_sent": 400_000}


def run_program(folder: Path, *arguments: str, program: Path = PROGRAM, **jobs: int) -> Path:
    """Run a program on a ps and two workers, or other `jobs`; return the run's folder.

    What serves is ended as train.yml does: the ps, and the workers of a chief, which needs no flags. A
    program that knows nothing of psfleet is observed.
    """
    (folder / "hosts").mkdir(parents=True)
    with Tasks(folder / "hosts", program, **({"ps": 1, "worker": 2} | jobs)) as tasks:
        tasks.observed, tasks.flags = program != PROGRAM, "chief" not in tasks.cluster
        placed: list[tuple[Job, str]] = [
            (job, target) for job in ("chief", "ps", "worker") for target in tasks.cluster.get(job, [])
        ]
        plan = plan_of(*placed)
        tasks.arguments = arguments
        tasks.environment = {"PSFLEET_PLAN_HASH": plan.hash}
        tasks.start()
        trains = "worker" if tasks.flags else "chief"
        trainers = [name for name in tasks.names if name.startswith(trains)]
        codes = tasks.wait(*trainers) | tasks.stop(*(name for name in tasks.names if name not in trainers))
        run = folder / RUN_ID
        for part in ("events", "logs"):
            (run / part).mkdir(parents=True)
        for name in tasks.names:
            shutil.copy(tasks.folder / f"{name}.out", run / "logs")
            for events in (tasks.directory(name) / "events").glob("*.jsonl"):
                shutil.copy(events, run / "events")
        told = {"release": "c0ffee", "file": str(program), "arguments": list(arguments), "flags": tasks.flags}
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


def end(run: Path, name: str, **changes: object) -> None:
    """Let a task have ended otherwise."""
    changed: Sequence[Mapping[str, Any]] = [
        entry | changes if entry["name"] == name else entry for entry in endings(run)
    ]
    (run / "tasks.json").write_text(json.dumps(changed))


def keep_no_records(run: Path) -> None:
    """Let the program be one that records nothing."""
    shutil.rmtree(run / "events")

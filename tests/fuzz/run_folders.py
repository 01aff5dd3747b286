"""The readers of a collected run's folder and of a run on a host, with a valid one of each kind."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from plugins.module_utils.tasks.trainer_tasks import Tasks
from psfleet.evidence.checkpoint_steps import global_step_in
from psfleet.evidence.reading import read_run, read_settings
from psfleet.evidence.run_manifest import Manifest
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from psfleet.evidence.verdict_lines import as_lines
from psfleet.report import devices, page
from psfleet.run.folder import run_for_playbooks, saved_run
from psfleet.run.host_answers import checked
from tests.fuzz.answers import ASKED, PLAN, PROGRESS, RUN_ID, answers_of_tasks
from tests.fuzz.damage import damaged
from tests.fuzz.search import Reader
from tests.psfleet.report.made_runs import make_run
from tests.psfleet.watch.test_status import task
from trainer import metrics
from trainer.contract.json_files import write_json
from trainer.contract.records import RecordWriter, TaskIdentity, events_file
from trainer.contract.settings import TrainingSettings
from trainer.contract.task_names import EVALUATOR
from trainer.host import task_traces

# A checkpoint that TensorFlow's Saver has written: global_step 300, and two weights of 0.
CHECKPOINT = {
    "model.ckpt.index": bytes.fromhex(
        "00000608011a020801000b0b676c6f62616c5f7374657008091200280835f2fe5b9d000111770801120412020802200828083529"
        "039807000000000100000000e8584775000000000100000000c0f2a1b000010278003f000000000100000000f84d77f54408510e"
        "00000000000000000000000000000000000000000000000000000000000000000000000057fb808b247547db"
    ),
    "model.ckpt.data-00000-of-00001": (300).to_bytes(16, "little"),
}
PROGRAM = {"release": "c0ffee", "file": "/opt/psfleet/train.py", "arguments": [], "flags": True}


def of_file(name: str, run: Path, file: str, read: Callable[[Path], object]) -> Reader:
    """The reader of a file in a run's folder, which is whole otherwise."""
    sample = (run / file).read_bytes()

    def read_file(content: bytes) -> None:
        (run / file).write_bytes(content)
        try:
            read(run)
        finally:
            (run / file).write_bytes(sample)

    return Reader(name, sample, damaged(sample), read_file)


def made(folder: Path) -> Path:
    """The folder of a run of our own model, as it is collected."""
    run, last = make_run(folder / RUN_ID), 400
    held = {"fingerprint": "0123456789abcdef", "sample_outputs": {"y[0]": 2.0, "y[1]": 10.0}}
    for worker in ("worker0", "worker1"):
        file = run / "events" / f"{worker}.jsonl"
        *records, end = file.read_text().splitlines()
        told = json.dumps(json.loads(end) | held | {"fingerprint_step": last})
        look = {"losses": {worker: 40.0}, "norms": {worker: 12.5}, "fits": {worker: 1.0}}
        looked = json.dumps(json.loads(records[-1]) | {"event": "gradients", "global_step": 0, **look})
        file.write_text("".join(f"{record}\n" for record in (*records, looked, told)))
    writer = RecordWriter(events_file(run, EVALUATOR, 0), TaskIdentity(RUN_ID, EVALUATOR, 0, PLAN.hash, "r1"))
    writer.write_started(TrainingSettings(model="linear").as_dict(), "2.21.0", "")
    writer.write("restored", {"global_step": last, "checkpoint": f"model.ckpt-{last}"})
    found = {"metrics": {"weight": 2.0, "bias": 10.0}, "examples": 9, **held}
    writer.write("evaluated", {"global_step": last, **found})
    writer.write("finished", {"reason": "evaluated"})
    for name in ("devices", "logs"):
        (run / name).mkdir()
    own, ps = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps"))
    operations = {own: {"MatMul": 2}, ps: {"Add": 1}}
    report = {"task": "worker0", "variables": {"weight": ps}, "operations": operations}
    write_json(run / "devices/worker0.json", report)
    (run / "logs/worker0.out").write_text("Step: 1\n")
    write_json(run / "progress.json", PROGRESS)
    counted = {"ended_by": "itself", "phase": "finished", "bytes_received": 500_000, "bytes_sent": 400_000}
    write_json(run / "tasks.json", [task(of.name, "inactive (dead)", **counted) for of in PLAN.tasks])
    Manifest.of(run).write(run)
    return run


def make_it_a_programs(run: Path) -> None:
    """Let the run be one of a program of the user's."""
    write_json(run / "settings.json", {"training": {}, "tasks": {}, "program": PROGRAM})
    for file in (run / "events").iterdir():
        records = [json.loads(record) | {"program": "c0ffee"} for record in file.read_text().splitlines()]
        file.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def make_it_an_own_models(run: Path) -> None:
    """Let the run be one of a model's file of the user's, with all that a card can have."""
    goals = {"weight": {"target": 2, "tolerance": 0.1}, "bias": {"level": "weight", "minimum": 7.5}}
    card = {
        "learning_rates": {"sgd": 0.1},
        "metrics": {"weight": "neither", "bias": "higher"},
        "goals": goals,
        "target_loss": {"level": "weight", "maximum": 90.5},
        "tables": {"rows": {"width": 1, "rows": 7}},
        "layers": {"first": [1, 2]},
    }
    content = json.loads((run / "settings.json").read_text())
    training = content["training"] | {"model": "/opt/psfleet/programs/0a1b2c3d4e5f/mine.py"}
    write_json(run / "settings.json", content | {"training": training, "card": card})


def judged(run: Path) -> None:
    """Judge the run as verify.yml does, and go on with it as train.yml would."""
    verdict = judge_run(read_run(run), EvidenceSettings())
    json.dumps(verdict.as_json(), allow_nan=False)
    assert all(text.isprintable() for text, _ in as_lines(verdict, run))
    assert all(text.isprintable() for text in devices.render(run).split("\n"))
    with suppress(ValueError):
        read_settings(run)
    with suppress(KeyError, ValueError):
        run_for_playbooks(run, *saved_run(run))


def checkpoint(folder: Path) -> Path:
    """Make a folder with a checkpoint."""
    folder.mkdir()
    for name, content in CHECKPOINT.items():
        (folder / name).write_bytes(content)
    assert global_step_in(folder / "model.ckpt") == 300
    return folder


def step_of_checkpoint(folder: Path) -> None:
    """Read the global step of a collected checkpoint, as a verdict does."""
    step = global_step_in(folder / "model.ckpt")
    assert step is None or 0 <= step < 2**63


def drawn_as_a_page(run: Path) -> None:
    read = read_run(run)
    page.render(read, judge_run(read, EvidenceSettings()))


def measured(run: Path) -> None:
    """Read what the tasks' user writes as root does: no task makes its host's answer one that is none."""
    events = run / "events/worker0.jsonl"
    paths = {"state_directory": run.parents[1], "configuration_directory": run, "log_directory": run}
    asked = {"tasks": [], "others": False, "stopped": {}, "details": True, "run_id": ""}
    tasks = Tasks({"paths": paths, **asked})
    unit = {"ActiveState": "failed", "NRestarts": "1", "LoadState": "loaded", "Result": "exit-code"}
    counted = {"bytes_received": 1, "bytes_sent": None, "refused": 2}
    described = tasks._read_task("worker", 0, unit, RUN_ID) | counted
    answer = answers_of_tasks()["node0"] | {"tasks": [described]}
    text = json.dumps(answer, ensure_ascii=False)
    checked("trainer_tasks", json.loads(text.encode()), ASKED)
    told = task_traces.last_step_figures(events), task_traces.read_object(run / "progress.json")
    of_host = metrics.HostTask("worker0", "worker", unit, RUN_ID, *told)
    text = metrics.render(metrics.families("psfleet", [of_host]))
    assert list(text_string_to_metric_families(text))

import io
import json
import tarfile
from pathlib import Path

from plugins.modules import run_archive, trainer_tasks


def test_parses_the_states_of_several_units() -> None:
    text = "ActiveState=active\nResult=success\n\nActiveState=failed\nResult=exit-code\n"
    assert [block["ActiveState"] for block in trainer_tasks.parse_show(text)] == ["active", "failed"]


def test_the_last_failure_is_found_behind_a_cut_line(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    failed = {"event": "failed", "class": "diverged", "reason": "loss is nan at step 7"}
    events.write_text(json.dumps({"event": "started"}) + "\n" + json.dumps(failed) + '\n{"event": "fin')
    assert trainer_tasks.last_failure(events) == "diverged: loss is nan at step 7"
    assert trainer_tasks.last_failure(tmp_path / "absent.jsonl") == ""


def test_the_run_of_a_task_is_read_from_its_environment_file(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ps-0.env").write_text('PSFLEET_RUN_ID="night-1"\nPSFLEET_TRAINING_FLAGS="--a=b"\n')
    assert trainer_tasks.run_id_of(tmp_path, "ps-0") == "night-1"
    assert trainer_tasks.run_id_of(tmp_path, "ps-1") == ""


def test_the_archive_holds_the_run_and_nothing_else(tmp_path: Path) -> None:
    state, logs = tmp_path / "state", tmp_path / "log"
    wanted = [
        logs / "r1" / "ps0.out",
        state / "runs/r1/events/worker0.jsonl",
        state / "runs/r1/checkpoints/model.ckpt-5.index",
    ]
    other = [
        logs / "r2" / "ps0.out",
        state / "runs/r1/checkpoints/model.ckpt-9.tempstate1",
        tmp_path / "secret",
    ]
    for path in wanted + other:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    (logs / "r1" / "link.out").symlink_to(tmp_path / "secret")
    assert packed("r1", state, logs) == [
        "logs/ps0.out",
        "events/worker0.jsonl",
        "checkpoints/model.ckpt-5.index",
    ]


def test_no_part_of_a_path_may_be_a_link(tmp_path: Path) -> None:
    state, logs, secret = tmp_path / "state", tmp_path / "log", tmp_path / "secret"
    for directory in (secret / "events", state / "runs" / "r1", logs):
        directory.mkdir(parents=True)
    (secret / "events" / "worker0.jsonl").write_text("x")
    (state / "runs" / "r1" / "events").symlink_to(secret / "events")
    (state / "runs" / "r2").symlink_to(secret)
    assert packed("r1", state, logs) == []
    assert packed("r2", state, logs) == []


def packed(run_id: str, state: Path, logs: Path) -> list[str]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        assert run_archive.add_run(archive, run_id, state, logs) == len(archive.getnames())
        return archive.getnames()

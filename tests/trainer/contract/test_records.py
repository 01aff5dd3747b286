"""Event records: a reader gets the written values back, and garbage never crashes it."""

import json
import math
import os
import platform
import resource
import time
from pathlib import Path

import pytest

from trainer.contract.record_fields import WRITES, fields_of
from trainer.contract.records import RecordWriter, TaskIdentity, open_records, read_records

ENDED = "reason local_step global_step seconds examples loss"
WORKER = TaskIdentity(run_id="r1", job="worker", index=1, plan_hash="0a1b2c3d4e5f", release="abc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker1.jsonl"


def test_written_records_are_read_back_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs" / "r1" / "events" / "worker1.jsonl"
    writer = open_records(tmp_path / "runs" / "r1", WORKER, pytest.fail)
    writer.write_started({"learning_rate": 0.5, "data": Path("/data")}, "2.21.0", "a:1", nonce=2**63 - 1)
    writer.write_started({}, "2.21.0", "a:1")
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + 0.12345678)
    monkeypatch.setattr(time, "monotonic", lambda: 12.34567891)
    writer.write("failed", {"class": "program", "reason": "ValueError: é"})
    fields = {"reason": "stopped", "local_step": 1, "global_step": 2, "seconds": 0.5, "examples": 3}
    writer.write("finished", {**fields, "loss": math.inf})
    (first, second, failed, finished), complaints = read_records(path)
    assert complaints == []
    assert not path.stat().st_mode & 0o111
    identity = {"run_id": "r1", "job": "worker", "index": 1, "plan_hash": "0a1b2c3d4e5f", "release": "abc"}
    of_process = {
        "host": platform.node(),
        "pid": os.getpid(),
        "wall": 1.7e9 + 0.123457,
        "monotonic": 12.345679,
    }
    common = {"v": 1, "event": "failed", **identity, **of_process}
    line = json.dumps({**common, "class": "program", "reason": "ValueError: é"}, separators=(",", ":"))
    assert path.read_text().splitlines()[2] == line
    own = {"tensorflow": "2.21.0", "python": platform.python_version(), "address": "a:1", "writes": WRITES}
    settings = {"learning_rate": 0.5, "data": "/data"}
    assert (first.event, first.fields) == ("started", {**own, "settings": settings, "nonce": 2**63 - 1})
    assert second.integer("nonce") % 2 == 1 < second.integer("nonce") < 2**48
    assert (failed.task, failed.text("class"), failed.text("loss")) == ("worker1", "program", "")
    assert (finished.fields["loss"], math.isnan(finished.number("loss"))) == (None, True)
    assert (first.integers("settings"), first.integers("nonce")) == (settings, {})
    with pytest.raises(KeyError, match="loss"):
        finished.integer("loss")


def test_an_unwritable_records_folder_is_reported_and_raises_no_error(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("in the way")
    told: list[str] = []
    for folder in (tmp_path, None):
        open_records(folder, WORKER, told.append).write("recovering", {"reason": "a ps went away"})
    assert told == [f"no records are kept: {tmp_path}/events/worker1.jsonl: File exists"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"v":1,"event":"step","run', "not JSON"),
        (b"\xff\xfe\x00garbage", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"v":1,"pid":' + b"9" * 400 + b"}", "not JSON (an integer of 400 digits)"),
        (b'{"v":1,"pid":9223372036854775808}', "not JSON (an integer of 19 digits)"),
        (b'"text"', "not a JSON object"),
        (b'{"v":2}', "v is 2, expected 1"),
        (b'{"v":1,"event":"step"}', "run_id is missing; job is missing; index is missing; host is missing"),
    ],
)
def test_an_unreadable_line_is_named_and_the_remaining_lines_are_read(
    path: Path, line: bytes, said: str
) -> None:
    writer = RecordWriter(path, WORKER)
    writer.write("recovering", {"reason": "first"})
    with path.open("ab") as file:
        file.write(b" \n" + line + b"\n")
    writer.write("recovering", {"reason": "last"})
    records, complaints = read_records(path)
    assert [record.text("reason") for record in records] == ["first", "last"]
    assert len(complaints) == 1
    assert complaints[0].startswith(f"{path}, line 3: {said}")
    assert "cut short" not in complaints[0]


def test_complaints_about_a_damaged_file_stop_after_a_hundred_lines(path: Path) -> None:
    RecordWriter(path, WORKER).write("recovering", {"reason": "first"})
    with path.open("ab") as file:
        file.write(b"garbage\n" * 150)
    records, complaints = read_records(path)
    assert [record.text("reason") for record in records] == ["first"]
    last, after = complaints[-2:]
    assert len(complaints) == 101
    assert last.startswith(f"{path}, line 101: not JSON")
    assert after == f"{path}, from line 102 on: too much of it is damaged"


def test_a_record_with_missing_or_invalid_fields_is_refused_when_written_and_when_read(path: Path) -> None:
    writer = RecordWriter(path, WORKER)
    missing = "finished: contributions is missing; finished: last_step is missing"
    with pytest.raises(ValueError, match=f"^record 'finished': {missing}$"):
        chief = TaskIdentity(run_id="r1", job="worker", index=0)
        fields = {"local_step": 1, "global_step": 2, "seconds": 0.5, "examples": 3, "loss": 0.1}
        RecordWriter(None, chief).write("finished", {"reason": "last step", **fields})
    with pytest.raises(ValueError, match=f"global_step is '{'0123456789' * 5}'; expected a whole number"):
        writer.write("initialised", {"global_step": "0123456789" * 5})
    with pytest.raises(ValueError, match="event 'stepped' is not one of started, peers_ready, initialised, "):
        writer.write("stepped")
    writer.write("initialised", {"global_step": 0})
    path.write_text(path.read_text().replace('"global_step":0', '"global_step":true'))
    records, complaints = read_records(path)
    assert records == []
    assert complaints == [f"{path}, line 1: initialised: global_step is True; expected a whole number"]


@pytest.mark.parametrize(
    ("event", "task", "program", "names"),
    [
        ("finished", "worker0", False, f"{ENDED} contributions last_step"),
        ("finished", "worker1", False, ENDED),
        ("finished", "ps0", False, "reason"),
        ("finished", "worker0", True, "reason"),
        ("evaluated", "worker0", True, "global_step metrics"),
        ("evaluated", "evaluator0", False, "global_step metrics fingerprint examples"),
        ("failed", "evaluator0", True, "class reason"),
        ("stepped", "worker0", True, ""),
    ],
)
def test_the_required_fields_depend_on_the_event_the_task_and_the_kind_of_run(
    event: str, task: str, program: bool, names: str
) -> None:
    rules = fields_of(event, task[:-1], int(task[-1]), program=program)
    assert {name for name, rule in rules.items() if not rule.optional} == {*names.split()}


@pytest.mark.parametrize("job", ["ps", "worker", "chief"])
def test_an_optional_field_of_a_program_is_checked_where_it_is_present(job: str) -> None:
    writer = RecordWriter(None, TaskIdentity("r1", job, 1, program="abc"))
    writer.write("finished", {"reason": "last step", "local_step": 7, "loss": None})
    with pytest.raises(ValueError, match=r"local_step is 7\.5; expected a whole number"):
        writer.write("finished", {"reason": "last step", "local_step": 7.5})


@pytest.mark.parametrize("counts", [{"0": 1}, [1, "2"], [True], "12"])
def test_a_staleness_histogram_must_be_a_list_of_counts(counts: object) -> None:
    step = dict.fromkeys(("local_step", "steps", "global_step_before", "global_step_after", "examples"), 1)
    step |= dict.fromkeys(("loss", "loss_mean", "seconds", "staleness_mean", "staleness_max"), 1)
    writer = RecordWriter(None, WORKER)
    writer.write("step", {**step, "staleness_histogram": [1, 2], "own_steps_behind": 1})
    with pytest.raises(ValueError, match=r"own_steps_behind is 1\.5; expected a whole number"):
        writer.write("step", {**step, "own_steps_behind": 1.5})
    with pytest.raises(ValueError, match=r"staleness_histogram.* is .*; expected a (list|whole number)"):
        writer.write("step", {**step, "staleness_histogram": counts})


@pytest.mark.parametrize("cut", [b'{"v":1,"event":"st', b"{"])
def test_a_restarted_task_does_not_append_its_records_to_a_cut_line(path: Path, cut: bytes) -> None:
    path.write_bytes(cut)
    for _ in range(2):
        RecordWriter(path, WORKER).write("recovering", {"reason": "restarted"})
    records, complaints = read_records(path)
    assert [record.text("reason") for record in records] == ["restarted"] * 2
    assert (len(complaints), path.read_bytes().count(b"\n")) == (1, 3)


def test_a_missing_file_and_a_cut_last_line_each_give_a_complaint(path: Path) -> None:
    records, complaints = read_records(path)
    assert (records, "No such file" in complaints[0]) == ([], True)
    RecordWriter(path, WORKER).write("recovering", {"reason": "whole"})
    path.write_bytes(path.read_bytes()[:-5])
    records, complaints = read_records(path)
    assert records == []
    assert len(complaints) == 1
    assert complaints[0].endswith("), and the line does not end: cut short")


def test_while_the_disk_is_full_records_wait_and_a_cut_line_is_continued(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = RecordWriter(path, WORKER)
    writer.write("recovering", {"reason": "first"})
    assert capsys.readouterr().err == ""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        for reason in ("cut", "kept"):
            writer.write("recovering", {"reason": reason})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err == f"records wait to be written: {path}: File too large\n"
    assert [record.text("reason") for record in read_records(path)[0]] == ["first"]
    writer.write("recovering", {"reason": "last"})
    records, complaints = read_records(path)
    assert [record.text("reason") for record in records] == ["first", "cut", "kept", "last"]
    assert complaints == []
    assert capsys.readouterr().err == f"records are written again: {path}\n"


def test_records_that_wait_for_disk_space_use_bounded_memory(capsys: pytest.CaptureFixture[str]) -> None:
    full = RecordWriter(Path("/dev/full"), WORKER)
    for _ in range(7):
        full.write("recovering", {"reason": "x" * 1_000_000})
    assert len(full._waiting) < 4 << 20
    waits, lost = capsys.readouterr().err.splitlines()
    assert waits == "records wait to be written: /dev/full: No space left on device"
    assert lost == "records are being lost: /dev/full: too many wait for space"

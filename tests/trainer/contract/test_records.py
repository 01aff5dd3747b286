"""Event records: what is written comes back, and garbage never crashes the reader."""

import json
import math
import os
from pathlib import Path

import pytest

from trainer.contract.records import RecordWriter, TaskIdentity, events_file, read_records

WORKER = TaskIdentity(run_id="r1", job="worker", index=1, plan_hash="0a1b2c3d4e5f", release="abc")


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = events_file(tmp_path, "worker", 1)
    writer = RecordWriter(path, WORKER)
    writer.write("recovering", {"reason": "a ps went away"})
    writer.write("failed", {"class": "program", "reason": "ValueError: é"})

    records, complaints = read_records(path)

    assert complaints == []
    assert [record.event for record in records] == ["recovering", "failed"]
    assert records[0].task == "worker1"
    assert records[0].pid == os.getpid()
    assert records[0].text("reason") == "a ps went away"
    assert records[1].fields == {"class": "program", "reason": "ValueError: é"}
    assert records[0].monotonic <= records[1].monotonic


def test_a_loss_that_is_not_finite_is_null(tmp_path: Path) -> None:
    path = tmp_path / "worker1.jsonl"
    fields = {"reason": "stopped", "local_step": 1, "global_step": 2, "seconds": 0.5, "examples": 3}
    RecordWriter(path, WORKER).write("finished", {**fields, "loss": math.inf})

    assert json.loads(path.read_text())["loss"] is None
    assert math.isnan(read_records(path)[0][0].number("loss"))


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
        (b'{"v":1,"event":"step"}', "run_id is missing"),
    ],
)
def test_an_unreadable_line_is_named_and_the_others_are_read(tmp_path: Path, line: bytes, said: str) -> None:
    path = tmp_path / "worker1.jsonl"
    writer = RecordWriter(path, WORKER)
    writer.write("recovering", {"reason": "first"})
    with path.open("ab") as file:
        file.write(line + b"\n")
    writer.write("recovering", {"reason": "last"})

    records, complaints = read_records(path)

    assert [record.text("reason") for record in records] == ["first", "last"]
    assert len(complaints) == 1
    assert "line 2" in complaints[0]
    assert said in complaints[0]


def test_a_record_without_its_fields_is_refused_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "worker1.jsonl"
    writer = RecordWriter(path, WORKER)
    with pytest.raises(ValueError, match="contributions is missing"):
        chief = TaskIdentity(run_id="r1", job="worker", index=0)
        fields = {"local_step": 1, "global_step": 2, "seconds": 0.5, "examples": 3, "loss": 0.1}
        RecordWriter(None, chief).write("finished", {"reason": "last step", **fields})
    with pytest.raises(ValueError, match="global_step is 'seven', expected int"):
        writer.write("initialised", {"global_step": "seven"})
    writer.write("initialised", {"global_step": 0})
    path.write_text(path.read_text().replace('"global_step":0', '"global_step":true'))

    records, complaints = read_records(path)

    assert records == []
    assert "initialised: global_step is 'True', expected int" in complaints[0]


@pytest.mark.parametrize("counts", [{"0": 1}, [1, "2"], [True], "12"])
def test_a_histogram_is_a_list_of_counts(counts: object) -> None:
    step = dict.fromkeys(("local_step", "steps", "global_step_before", "global_step_after", "examples"), 1)
    step |= dict.fromkeys(("loss", "loss_mean", "seconds", "staleness_mean", "staleness_max"), 1)
    writer = RecordWriter(None, WORKER)
    writer.write("step", {**step, "staleness_histogram": [1, 2]})
    with pytest.raises(ValueError, match=r"staleness_histogram is .*, expected counts"):
        writer.write("step", {**step, "staleness_histogram": counts})


def test_a_restarted_task_does_not_glue_its_records_to_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "worker1.jsonl"
    path.write_bytes(b'{"v":1,"event":"st')
    RecordWriter(path, WORKER).write("recovering", {"reason": "restarted"})
    records, complaints = read_records(path)
    assert [record.text("reason") for record in records] == ["restarted"]
    assert len(complaints) == 1


def test_a_file_that_lacks_and_a_last_line_that_is_cut_are_complaints(tmp_path: Path) -> None:
    path = tmp_path / "worker1.jsonl"
    records, complaints = read_records(path)
    assert (records, "No such file" in complaints[0]) == ([], True)
    RecordWriter(path, WORKER).write("recovering", {"reason": "whole"})
    path.write_bytes(path.read_bytes()[:-5])

    records, complaints = read_records(path)

    assert records == []
    assert "cut short" in complaints[0]


def test_a_full_disk_does_not_stop_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordWriter(Path("/dev/full"), WORKER)
    writer.write("recovering", {"reason": "one"})
    writer.write("recovering", {"reason": "two"})
    assert capsys.readouterr().err.count("records are being lost: /dev/full: No space left") == 1

"""The traces that a run's tasks leave in files of their host, including hostile ones."""

import json
import os
from pathlib import Path

import pytest

from tests.trainer.step_record import STEP
from trainer.host import task_traces
from trainer.host.error_lines import LONGEST_LINE, last_words


def test_the_last_failure_of_the_present_process_is_read_despite_a_cut_line(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    failed = {"event": "failed", "class": "diverged", "reason": "loss is nan at step 7"}
    begun = json.dumps({"event": "started"}) + "\n"
    events.write_text(begun + json.dumps(failed) + '\n{"event": "fin')
    assert task_traces.last_failure(events) == "diverged: loss is nan at step 7"
    events.write_text(begun + json.dumps(failed) + "\n" + begun)  # of an earlier process
    assert task_traces.last_failure(events) == ""
    assert task_traces.last_failure(tmp_path / "absent.jsonl") == ""


@pytest.mark.parametrize(
    ("recorded", "printed", "told"),
    [
        ("KeyError: 'a'", "KeyError: 'a'\n(write b)", "KeyError: 'a'\n(write b)"),
        (
            "TBError: no\nreason",
            "tensorflow.tb.TBError: no\nreason\n(add it)",
            "tensorflow.tb.TBError: no\nreason\n(add it)",
        ),
        ("the data are empty", "the program ended with exit code 1", "program: the data are empty"),
        ("KeyError: 'a'", "", "program: KeyError: 'a'"),
        ("", "KeyError: 'a'", ""),
    ],
)
def test_the_reason_of_a_program_has_the_remedy_that_its_launcher_printed(
    tmp_path: Path, recorded: str, printed: str, told: str
) -> None:
    events = tmp_path / "worker0.jsonl"
    record = {"event": "failed", "class": "program", "reason": recorded}
    events.write_text(json.dumps({"event": "started"}) + "\n" + (json.dumps(record) if recorded else ""))
    lines = f"step 3\nworker0: the program failed: {printed} (exit code 70)".splitlines() if printed else []
    assert task_traces.why_failed(events, "worker0", lines) == told


def test_the_last_step_is_read_before_later_records(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    records = [
        STEP | {"loss": 0.9},
        STEP | {"seconds": 0.5},
        {"event": "finished", "reason": "last step", "wall": 2e9},
    ]
    events.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert task_traces.last_step_figures(events) == {
        "global_step": 60,
        "local_step": 30,
        "loss": 0.5,
        "steps_per_second": 20.0,
        "examples_per_second": 2000.0,
        "wall": 1e9,
    }
    assert task_traces.last_record(events)["reason"] == "last step"

    last = {**STEP, "seconds": 0, "steps": 2**62, "loss": -(2**63), "global_step_after": -(2**62)}
    events.write_text(json.dumps(last))
    rates = {"steps_per_second": None, "examples_per_second": None}
    assert (
        task_traces.last_step_figures(events)
        == {"global_step": -(2**62), "local_step": 30, "loss": None, "wall": 1e9} | rates
    )
    assert (
        task_traces.last_step_figures(tmp_path / "absent")
        == task_traces.last_record(tmp_path / "absent")
        == {}
    )


@pytest.mark.parametrize("value", [None, "1", True, [1], float("nan"), float("inf"), 10**400])
def test_an_invalid_number_in_the_last_step_is_unknown(tmp_path: Path, value: object) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps({"event": "step", **dict.fromkeys(list(STEP)[1:], value)}))
    assert set(task_traces.last_step_figures(events).values()) == {None}


def test_the_run_of_a_task_is_read_from_its_environment_file(tmp_path: Path) -> None:
    file = task_traces.run_file(tmp_path, "ps", 0)
    file.parent.mkdir()
    assert file == tmp_path / "run" / "ps-0.env"
    file.write_bytes(b'# \xff\nPSFLEET_RUN_ID="night=1"\nPSFLEET_PROGRAM="/a=b"\n')
    assert task_traces.run_id_of(file) == "night=1"
    file.write_text("PSFLEET_OTHER=1\n")
    assert task_traces.run_id_of(file) == ""
    assert task_traces.run_id_of(tmp_path / "absent") == ""


def test_the_last_lines_of_a_log_are_its_last_nonempty_lines(tmp_path: Path) -> None:
    log = tmp_path / "worker0.out"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)) + "\nthe end\n")
    last = "line 19996\nline 19997\nline 19998\nline 19999\nthe end"
    assert last_words(task_traces.last_lines_of(log)) == last
    log.write_bytes(b"one\ntwo \xff\n")
    assert last_words(task_traces.last_lines_of(log)) == "one\ntwo \ufffd"
    assert task_traces.object_in("[1]") == {}


NESTED = "[" * 60_000


@pytest.mark.parametrize("kind", ["fifo", "zero", "link", "linked folder", "nested", "folder", "absent"])
def test_links_and_special_files_in_place_of_a_tasks_files_are_not_read(tmp_path: Path, kind: str) -> None:
    runs, own = tmp_path / "runs", tmp_path / "own.json"
    runs.mkdir(mode=0o777)
    runs.chmod(0o777)  # links in it may be of anybody
    own.write_text('{"event": "failed", "class": "a", "reason": "b"}')
    file = runs / "progress.json"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind in {"zero", "link"}:
        file.symlink_to("/dev/zero" if kind == "zero" else own)
    elif kind == "linked folder":
        (runs / "r1").symlink_to(tmp_path)
        file = runs / "r1" / own.name
    elif kind == "nested":
        file.write_text(NESTED)
    elif kind == "folder":
        file.mkdir()
    assert task_traces.read_object(file) == {}
    assert task_traces.last_failure(file) == ""
    assert task_traces.last_step_figures(file) == {}
    assert task_traces.run_id_of(file) == ""
    assert len(last_words(task_traces.last_lines_of(file))) <= (LONGEST_LINE if kind == "nested" else 0)


def test_a_huge_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "worker0.out"
    with file.open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(2**40)
    assert len(task_traces.bytes_of(file)) == task_traces.MOST_BYTES
    assert task_traces.bytes_of(file, most=5) == b"begin"
    with file.open("r+b") as stream:
        stream.seek(2**40 - 3)
        stream.write(b"end")
    last = task_traces.bytes_of(file, last=True)
    assert (len(last), last[-4:]) == (task_traces.MOST_BYTES, b"\0end")


@pytest.mark.parametrize(
    "told", ['"\\ud800"', '{"\\udc00": 1}', "[" * 60 + "]" * 60, '{"a":' * 60 + "1" + "}" * 60]
)
def test_json_that_ansible_cannot_accept_reads_as_empty(told: str) -> None:
    """If one task's file broke the answer of its host, the host's other tasks could not be stopped."""
    assert task_traces.object_in(f'{{"phase": {told}}}') == {}
    assert task_traces.object_in('{"phase": "\\ud83d\\ude00"}') == {"phase": "\U0001f600"}


def test_an_infinite_rate_is_unknown(tmp_path: Path) -> None:
    step = {"event": "step", "steps": 2**62, "examples": 1, "seconds": 5e-324}
    (tmp_path / "worker0.jsonl").write_text(json.dumps(step))
    found = task_traces.last_step_figures(tmp_path / "worker0.jsonl")
    assert (found["steps_per_second"], found["examples_per_second"]) == (None, None)


def test_the_trainers_own_reason_is_read_from_the_log_if_it_could_not_be_recorded() -> None:
    """The disk is full; TensorFlow's error precedes the reason in the log, and other lines follow it."""
    full = "the last checkpoint, of global step 301, is not saved: No space left on device"
    lines = [
        "Traceback (most recent call last):",
        '  File "save.py", line 1, in save',
        "OSError: [Errno 28] No space left on device",
        f"Training failed (input): {full}",
        *(f"line {number} behind it" for number in range(5)),
    ]
    assert task_traces.why_ended("worker0", "exit-code", lines).startswith(
        f"Training failed (input): {full}\n"
    )
    assert task_traces.why_ended("worker0", "watchdog", lines).startswith("systemd ended it")

import json
import os
import time
from pathlib import Path

import pytest

from plugins.module_utils import task_details, unit_traffic
from plugins.modules import trainer_tasks
from tests.trainer.step_record import STEP
from trainer.host import deployment, task_traces, task_units


def test_parses_the_states_of_several_units() -> None:
    text = "ActiveState=active\nResult=success\n\nActiveState=failed\nResult=exit-code\n"
    assert [block["ActiveState"] for block in task_units.parse_show(text)] == ["active", "failed"]


@pytest.mark.parametrize(
    ("state", "job", "alive"),
    [
        ("active", "0", True),
        ("activating", "12", True),
        ("inactive", "12", True),
        ("inactive", "0", False),
        ("inactive", "", False),
        ("failed", "0", False),
    ],
)
def test_a_task_whose_start_waits_for_another_is_alive(state: str, job: str, *, alive: bool) -> None:
    assert task_units.is_alive({"ActiveState": state, "Job": job}) is alive


def test_the_last_failure_is_found_behind_a_cut_line(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    failed = {"event": "failed", "class": "diverged", "reason": "loss is nan at step 7"}
    begun = json.dumps({"event": "started"}) + "\n"
    events.write_text(begun + json.dumps(failed) + '\n{"event": "fin')
    assert task_traces.last_failure(events) == "diverged: loss is nan at step 7"
    events.write_text(begun + json.dumps(failed) + "\n" + begun)  # of an earlier process
    assert task_traces.last_failure(events) == ""
    assert task_traces.last_failure(tmp_path / "absent.jsonl") == ""


def test_the_last_step_is_found_before_what_came_after(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    records = [STEP | {"loss": 0.9}, STEP, {"event": "finished", "reason": "last step", "wall": 2e9}]
    events.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert task_traces.last_step(events) == {
        "global_step": 60,
        "local_step": 30,
        "loss": 0.5,
        "steps_per_second": 5.0,
        "examples_per_second": 500.0,
        "wall": 1e9,
    }
    assert task_traces.last_record(events)["reason"] == "last step"


@pytest.mark.parametrize("value", [None, "1", True, [1], float("nan"), float("inf"), 10**400])
def test_what_is_no_number_in_the_last_step_is_not_known(tmp_path: Path, value: object) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps({"event": "step", **dict.fromkeys(list(STEP)[1:], value)}))
    assert set(task_traces.last_step(events).values()) == {None}


def test_details_of_a_task_that_systemd_has_forgotten(tmp_path: Path) -> None:
    events, log = tmp_path / "worker0.jsonl", tmp_path / "worker0.out"
    finished = {"event": "finished", "reason": "stopped", "wall": time.time() - 100}
    events.write_text(json.dumps(finished))
    log.write_text("the end\n")
    shown = {
        "StateChangeTimestampMonotonic": "0",
        "MemoryCurrent": "[not set]",
        "CPUUsageNSec": str(2**64 - 1),
    }
    found = task_details.task_details(shown, events, log)
    assert 100 <= found["since_seconds"] < 160
    assert (found["finished"], found["memory_bytes"], found["cpu_seconds"]) == ("stopped", None, None)
    assert found["log_end"] == "the end\n"


def test_details_of_a_task_that_runs(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps(STEP | {"wall": time.time() - 5}))
    began = str(int((time.monotonic() - 50) * 1e6))
    shown = {"StateChangeTimestampMonotonic": began, "MemoryCurrent": "4096", "CPUUsageNSec": "1500000000"}
    found = task_details.task_details(shown, events, tmp_path / "absent")
    assert 50 <= found["since_seconds"] < 110
    assert 5 <= found["last_step_age_seconds"] < 65
    assert (found["finished"], found["memory_bytes"], found["cpu_seconds"]) == ("", 4096, 1.5)


@pytest.mark.parametrize("wall", [True, "1", float("nan"), 10**400])
def test_a_time_that_only_damage_explains_has_no_age(tmp_path: Path, wall: object) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps({"event": "finished", "reason": "stopped", "wall": wall}))
    assert task_details.task_details({}, events, tmp_path / "absent")["since_seconds"] is None


LONGER = "systemd has ended it, for it took longer than its unit allows"


@pytest.mark.parametrize(
    ("result", "lines", "reason"),
    [
        ("timeout", "Evaluating", f"{LONGER}\nEvaluating"),
        ("oom-kill", "", "the kernel has ended it, for the memory of its host was used up"),
        ("exit-code", "Traceback", "Traceback"),
        ("exit-code", "", "exit-code"),
    ],
)
def test_of_a_process_that_told_no_reason_systemd_may_know_it(result: str, lines: str, reason: str) -> None:
    assert trainer_tasks.why_ended(result, lines) == reason


def test_the_run_of_a_task_is_read_from_its_environment_file(tmp_path: Path) -> None:
    file = task_traces.run_file(tmp_path, "ps", 0)
    file.parent.mkdir()
    file.write_text('PSFLEET_RUN_ID="night-1"\nPSFLEET_TRAINING_FLAGS="--a=b"\n')
    assert task_traces.run_id_of(file) == "night-1"
    assert task_traces.run_id_of(tmp_path / "absent") == ""


def test_the_last_lines_are_those_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "worker0.out"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)) + "\nthe end\n")
    assert task_traces.last_lines(log) == "line 19997\nline 19998\nline 19999\nthe end"


NESTED = "[" * 60_000


@pytest.mark.parametrize("kind", ["fifo", "zero", "link", "linked folder", "nested", "folder", "absent"])
def test_what_a_task_put_in_place_of_its_files_is_not_followed(tmp_path: Path, kind: str) -> None:
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
    assert task_traces.last_step(file) == {}
    assert task_traces.run_id_of(file) == ""
    assert len(task_traces.last_lines(file)) <= (len(NESTED) if kind == "nested" else 0)


def test_a_file_without_end_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "worker0.out"
    with file.open("wb") as stream:
        stream.write(b"begin")
        stream.truncate(2**40)
    assert len(task_traces.bytes_of(file)) == task_traces.MOST_BYTES
    assert task_traces.bytes_of(file, most=5) == b"begin"
    assert set(task_traces.bytes_of(file, last=True)) == {0}


def test_a_plan_may_be_longer_than_what_a_task_leaves(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"tasks": ["x" * 100_000]}))
    assert task_traces.read_object(plan, most=deployment.MOST_BYTES_OF_PLAN) != {}
    assert task_traces.read_object(plan) == {}


def test_units_and_files_of_tasks_are_known_by_their_names() -> None:
    names = ["psfleet-server@11.service", "chief-0.env", "evaluator-0.env"]
    assert [task_units.task_of(name) for name in names] == [("server", 11), ("chief", 0), ("evaluator", 0)]
    others = ["psfleet-journal@ps0.service", "program.json"]
    assert [task_units.task_of(name) for name in others] == [None, None]


SUCCESS, RESOURCES = "7ad2d189f7e94e70a38c781354912448", "ae8f7b866b0347b9af31fe1c80b127c0"
STARTED = "39f53479d3a045ac8e11786248231fbf"


def entry(unit: str, seconds: float, message: str = RESOURCES, **fields: str) -> str:
    of_all = {"UNIT": unit, "__REALTIME_TIMESTAMP": str(int(seconds * 1e6)), "MESSAGE_ID": message}
    return json.dumps(of_all | fields)


def resources(unit: str, seconds: float, received: str, sent: str) -> str:
    figures = {"IP_METRIC_INGRESS_BYTES": received, "IP_METRIC_EGRESS_BYTES": sent}
    return entry(unit, seconds, **figures)


def test_traffic_of_every_life_since_the_run_began_is_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that has ended without an entry of its traffic had none, where this host counts at all."""
    entries = [
        resources("a", 99.0, "1000", "1000"),
        resources("a", 101.0, "10", "1"),
        resources("a", 102.0, "20", "2"),
        resources("b", 103.0, "5", "6"),
        entry("c", 104.0, CPU_USAGE_NSEC="1"),
        entry("c", 99.0, SUCCESS),
        entry("d", 101.0, SUCCESS),
        entry("e", 101.0, STARTED),
        '{"UNIT": "a", "IP_MET',
    ]
    monkeypatch.setattr(unit_traffic, "run", lambda *_: "\n".join(entries))
    began = dict.fromkeys("acde", 100.0) | {"b": 0.0}
    known = {"a": (30, 3), "b": (5, 6), "c": (None, None), "e": (None, None)}
    for counts, of_silent in ((True, (0, 0)), (False, (None, None))):
        monkeypatch.setattr(unit_traffic, "counts", lambda counts=counts: counts)
        found = unit_traffic.unit_traffic({unit: {} for unit in began}, began)
        assert found == known | {"d": of_silent}


@pytest.mark.parametrize(
    ("received", "process", "counted"),
    [
        ("12", "77", (12, 3)),
        ("12", "0", None),
        ("[no data]", "77", None),
        (str(2**64 - 1), "77", None),
        ("", "77", None),
    ],
)
def test_traffic_of_a_process_is_known_where_it_runs_and_is_counted(
    received: str, process: str, counted: tuple[int, int] | None
) -> None:
    shown = {"IPIngressBytes": received, "IPEgressBytes": "3", "MainPID": process}
    assert unit_traffic.traffic_of_running(shown) == counted

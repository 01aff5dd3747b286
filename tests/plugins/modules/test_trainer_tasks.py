import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.deployment import deployed_plan
from plugins.module_utils.host.task_traces import exit_code, run_file, why_ended
from plugins.module_utils.tasks import task_details, unit_traffic
from plugins.module_utils.tasks import trainer_tasks as tasks_of_host
from plugins.module_utils.tasks.boots import boot_of
from plugins.modules import trainer_tasks
from psfleet.run.host_answers import checked
from tests.plugins.modules.module_run import module_answer
from tests.trainer.step_record import STEP


def test_details_of_a_forgotten_unit_come_from_its_records_and_log(tmp_path: Path) -> None:
    events, log = tmp_path / "worker0.jsonl", tmp_path / "worker0.out"
    finished = {"event": "finished", "reason": "stopped", "wall": time.time() - 100}
    events.write_text(json.dumps(finished))
    log.write_text("the end\n")
    shown = {
        "StateChangeTimestampMonotonic": "0",
        "WatchdogTimestampMonotonic": "0",
        "MemoryCurrent": "[not set]",
        "CPUUsageNSec": str(2**64 - 1),
    }
    found = task_details.task_details(shown, events, log)
    assert 100 <= found["since_seconds"] < 160
    assert found["sign_of_life_age_seconds"] is None
    assert (found["finished"], found["memory_bytes"], found["cpu_seconds"]) == ("stopped", None, None)
    assert found["log_end"] == "the end\n"


def test_details_of_a_running_task_have_its_ages_and_resources(tmp_path: Path) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps(STEP | {"wall": time.time() - 5}))
    began = str(int((time.monotonic() - 50) * 1e6))
    signed = str(int((time.monotonic() - 20) * 1e6))
    shown = {"StateChangeTimestampMonotonic": began, "WatchdogTimestampMonotonic": signed}
    shown |= {"MemoryCurrent": "4096", "CPUUsageNSec": "1500000000"}
    found = task_details.task_details(shown, events, tmp_path / "absent")
    assert 50 <= found["since_seconds"] < 110
    assert 5 <= found["last_step_age_seconds"] < 65
    assert 20 <= found["sign_of_life_age_seconds"] < 80
    assert (found["finished"], found["memory_bytes"], found["cpu_seconds"]) == ("", 4096, 1.5)


@pytest.mark.parametrize("wall", [True, "1", float("nan"), 10**400])
def test_an_invalid_time_gives_no_age(tmp_path: Path, wall: object) -> None:
    events = tmp_path / "worker0.jsonl"
    events.write_text(json.dumps({"event": "finished", "reason": "stopped", "wall": wall}))
    assert task_details.task_details({}, events, tmp_path / "absent")["since_seconds"] is None


def test_restarts_before_a_stop_are_kept_although_systemd_forgets_them(tmp_path: Path) -> None:
    names = ("configuration_directory", "log_directory", "state_directory", "install_directory")
    asked = {"tasks": [], "others": False, "stopped": {"worker1": 3}, "details": False, "run_id": ""}
    tasks = tasks_of_host.Tasks({**asked, "paths": dict.fromkeys(names, str(tmp_path))})
    forgotten = {"LoadState": "loaded", "ActiveState": "inactive", "NRestarts": "0"}
    assert [tasks._read_task("worker", index, forgotten, "r1")["restarts"] for index in (0, 1)] == [0, 3]
    assert tasks._read_task("worker", 1, {**forgotten, "NRestarts": "4"}, "r1")["restarts"] == 4


FAILED = "ps1: the program failed: ValueError: one\ntwo (exit code 70)"
ABSL = "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR"
NO_MEMORY = (
    "out_of_memory: the kernel killed it, because its host ran out of memory: "
    "a smaller batch or model, fewer tasks on this host, or more memory helps"
)
LONGER = "systemd ended it, because it took longer than its unit allows"


@pytest.mark.parametrize(
    ("result", "lines", "reason"),
    [
        ("timeout", "Evaluating", f"{LONGER}\nEvaluating"),
        ("oom-kill", "", NO_MEMORY),
        ("signal", f"{ABSL}\nStep: 100", "a signal ended it\nStep: 100"),
        ("start-limit-hit", ABSL, "start-limit-hit"),
        ("exit-code", "Traceback", "Traceback"),
        ("exit-code", "", "exit-code"),
        ("exit-code", f"ps0: the program failed: not me (exit code 1)\n{FAILED}", "ValueError: one\ntwo"),
        ("exit-code", f"{FAILED.replace('one', 'old')}\n{FAILED}\nand further", "ValueError: one\ntwo"),
        # Lines of an earlier process do not explain the end by the watchdog.
        ("watchdog", FAILED, f"systemd ended it, because it gave no sign of life\n{FAILED}"),
    ],
)
def test_the_result_of_systemd_explains_an_end_without_a_reason(result: str, lines: str, reason: str) -> None:
    assert why_ended("ps1", result, lines.splitlines()) == reason


SUCCESS, RESOURCES = "7ad2d189f7e94e70a38c781354912448", "ae8f7b866b0347b9af31fe1c80b127c0"
STARTED = "39f53479d3a045ac8e11786248231fbf"


def entry(unit: str, seconds: float, message: str = RESOURCES, **fields: str) -> str:
    of_all = {"UNIT": unit, "__REALTIME_TIMESTAMP": str(int(seconds * 1e6)), "MESSAGE_ID": message}
    return json.dumps(of_all | fields)


def resources(unit: str, seconds: float, received: str, sent: str) -> str:
    figures = {"IP_METRIC_INGRESS_BYTES": received, "IP_METRIC_EGRESS_BYTES": sent}
    return entry(unit, seconds, **figures)


def test_traffic_of_every_process_since_the_start_of_the_run_is_summed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    monkeypatch.setattr(unit_traffic, "output_of", lambda *_: "\n".join(entries))
    began = dict.fromkeys("acde", 100.0) | {"b": 0.0}
    known = {"a": (30, 3), "b": (5, 6), "c": (None, None), "e": (None, None)}
    for counts, of_silent in ((True, (0, 0)), (False, (None, None))):
        monkeypatch.setattr(unit_traffic, "can_count_traffic", lambda counts=counts: counts)
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
def test_traffic_is_known_only_of_a_running_process_with_byte_counts(
    received: str, process: str, counted: tuple[int, int] | None
) -> None:
    shown = {"IPIngressBytes": received, "IPEgressBytes": "3", "MainPID": process}
    assert unit_traffic.traffic_of_running(shown) == counted


def test_the_answer_of_the_step_passes_the_controllers_check(tmp_path: Path) -> None:
    names = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    asked: dict[str, Any] = {"tasks": [], "paths": dict.fromkeys(names, str(tmp_path)), "fence": True}
    answer = module_answer(trainer_tasks, **asked)
    assert checked("trainer_tasks", answer, asked) == {
        name: answer[name] for name in answer if name != "invocation"
    }


def test_holds_run_is_true_if_the_place_of_the_run_is_not_empty(tmp_path: Path) -> None:
    names = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    asked: dict[str, Any] = {"tasks": [], "paths": dict.fromkeys(names, str(tmp_path)), "run_id": "r1"}

    def told() -> object:
        return module_answer(trainer_tasks, **asked)["holds_run"]

    assert told() is False
    place = tmp_path / "runs" / "r1"
    place.mkdir(parents=True)
    assert told() is False, "somebody has mounted a disk there"
    (place / "checkpoints").mkdir()
    assert told() is True
    shutil.rmtree(place)
    place.symlink_to("gone")
    assert told() is True
    place.unlink()
    assert told() is False
    (tmp_path / "runs" / ".tmp" / "r1" / "worker0").mkdir(parents=True)
    assert told() is True, "what its tasks had in /tmp would be found by those of another"


def test_a_host_returns_its_whole_plan_only_if_it_differs_from_the_requested_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert deployed_plan(file, "abc") == {}
    file.write_text('{"hash": "abc", "tasks": []}')
    assert deployed_plan(file, "") == {}
    assert deployed_plan(file, "abc") == {"hash": "abc"}
    assert deployed_plan(file, "other") == {"hash": "abc", "tasks": []}


@pytest.mark.parametrize(
    ("process", "status", "told", "known"),
    [
        ("77", "1", '{"exit_code": 0}', 1),  # systemd knows
        ("77", "0", "", 0),
        ("0", "0", '{"exit_code": 143}', 143),  # it has forgotten a unit that ended well
        ("0", "0", "", None),
        ("0", "0", '{"exit_code": "0"}', None),
        ("0", "0", '{"exit_code": 1e400}', None),
        ("", "", '{"exit_code": 256}', None),
        ("0", "0", "[]", None),
    ],
)
def test_the_exit_code_comes_from_systemd_or_the_task_or_is_unknown(
    tmp_path: Path, process: str, status: str, told: str, known: int | None
) -> None:
    if told:
        (tmp_path / "endings").mkdir()
        (tmp_path / "endings" / "worker0.json").write_text(told)
    values = {"ExecMainPID": process, "ExecMainStatus": status}
    assert exit_code(values, tmp_path, "worker0") == known


SYSTEMCTL = """#!/bin/sh
case "$1" in
  show) {show} ;;
  stop) echo 'Failed to stop psfleet-worker@0.service: Operation refused' >&2; exit 4 ;;
esac
"""
ALIVE, ENDED = (f"printf 'LoadState=loaded\\nActiveState={state}\\n'" for state in ("active", "inactive"))


@pytest.mark.parametrize(
    ("show", "asked", "said"),
    [
        ("true", "queried", "systemctl show was asked for 1 units and answered for 0"),
        (
            "echo 'Failed to connect to bus' >&2; exit 1",
            "queried",
            "systemctl show was asked for 1 units and answered: Failed to connect to bus",
        ),
        (
            ALIVE,
            "stopped",
            "worker0 could not be stopped: Failed to stop psfleet-worker@0.service: Operation refused",
        ),
        (ENDED, "stopped", ""),
    ],
)
def test_a_failure_of_systemctl_is_reported_with_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, show: str, asked: str, said: str
) -> None:
    (tmp_path / "systemctl").write_text(SYSTEMCTL.format(show=show))
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    names = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    paths = dict.fromkeys(names, str(tmp_path))
    answer = module_answer(trainer_tasks, tasks=[{"job": "worker", "index": 0}], paths=paths, state=asked)
    assert (answer.get("failed", False), answer.get("msg", "")) == (bool(said), said)
    if not said:
        assert [task["alive"] for task in answer["tasks"]] == [False]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"ps0": "r1", "worker0": "r2"}, "ps0 of r1, worker0 of r2"),
        ({"ps0": "r1"}, "ps0 of r1, worker0 of none"),
        ({}, "ps0 of none, worker0 of none"),
    ],
)
def test_tasks_that_are_not_of_one_run_are_not_started(
    tmp_path: Path, told: dict[str, str], said: str
) -> None:
    names = ("configuration_directory", "log_directory", "state_directory", "install_directory")
    tasks = tasks_of_host.Tasks(
        {
            **{"tasks": [{"job": "ps", "index": 0}, {"job": "worker", "index": 0}], "others": False},
            **{"stopped": {}, "details": False, "run_id": "", "paths": dict.fromkeys(names, str(tmp_path))},
        }
    )
    for job, index in tasks.units.values():
        file = run_file(tasks.configuration, job, index)
        file.parent.mkdir(exist_ok=True)
        if run_id := told.get(f"{job}{index}"):
            file.write_text(f'PSFLEET_RUN_ID="{run_id}"\n')
    with pytest.raises(
        OSError, match=f"^the tasks to be started do not belong to one run: {said}. Nothing was"
    ):
        tasks._run_to_start()


WENT_DOWN = "its host went down, and was booted since; the last step that it recorded is 400"


@pytest.mark.parametrize(
    ("told", "known"),
    [
        (143, (True, "host", WENT_DOWN)),
        (None, (True, "host", WENT_DOWN)),
        (0, (False, "itself", "")),
        (70, (True, "itself", "exit-code")),
    ],
)
def test_a_task_on_a_host_that_went_down_is_distinguished_from_an_ended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int | None, known: tuple[object, ...]
) -> None:
    (tmp_path / "systemctl").write_text(SYSTEMCTL.format(show=ENDED))
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    names = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    asked: dict[str, Any] = {
        "tasks": [{"job": "worker", "index": 0}],
        "paths": dict.fromkeys(names, str(tmp_path)),
    }
    run = tmp_path / "runs/r1"
    for folder in (tmp_path / "run", run / "events", run / "endings"):
        folder.mkdir(parents=True)
    (tmp_path / "run/worker-0.env").write_text('PSFLEET_RUN_ID="r1"\n')
    (run / "events/worker0.jsonl").write_text(json.dumps(STEP | {"global_step_after": 400}))
    if told is not None:
        (run / "endings/worker0.json").write_text(json.dumps({"exit_code": told}))

    def ending(state: str = "queried") -> tuple[object, ...]:
        (task,) = module_answer(trainer_tasks, **asked, state=state)["tasks"]
        return tuple(task[name] for name in ("failed", "ended_by", "reason", "exit_code"))

    boot = tmp_path / "run/worker-0.boot"
    boot.write_text(f"{boot_of()}\n")
    assert ending() == (False, "itself", "", told)
    boot.write_text("of another boot\n")
    assert ending(state="stopped") == (*known, told)
    assert ending() == (*known, told), "who looks later hears the same"
    # A task that ended in this boot was not ended by a later boot.
    boot.write_text(f"{boot_of()}\n")
    ending(state="stopped")
    assert not boot.exists()


def test_units_of_a_run_are_enabled_until_they_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    (tmp_path / "systemctl").write_text(
        SYSTEMCTL.format(show=ENDED).replace("case", f'echo "$@" >> {calls}\ncase')
    )
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    names = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    paths = {name: str(tmp_path / name) for name in names}
    of_task = {
        job: run_file(Path(paths["configuration_directory"]), job, 0) for job in ("worker", "evaluation")
    }
    for folder in (*paths.values(), str(of_task["worker"].parent)):
        Path(folder).mkdir()
    for job, file in of_task.items():
        file.write_text('PSFLEET_RUN_ID="r1"\n')
        tasks = [{"job": job, "index": 0}]
        module_answer(trainer_tasks, tasks=tasks, paths=paths, state="started")
    enabled = [line for line in calls.read_text().splitlines() if "able" in line]
    assert enabled == ["--no-reload enable psfleet-worker@0.service"]
    module_answer(trainer_tasks, tasks=[{"job": "worker", "index": 0}], paths=paths, state="stopped")
    assert "--no-reload disable psfleet-worker@0.service" in calls.read_text().splitlines()

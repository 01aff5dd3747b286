import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from psfleet.watch.failed_run import failures
from psfleet.watch.lead_reading import Reading
from psfleet.watch.live_block import log_line
from psfleet.watch.task_states import TaskState
from psfleet.watch.unit_states import SILENT_SECONDS, unit_commands, unit_states
from tests.psfleet.watch.played_runs import PlayedRun, decided_run, progress, unit
from tests.psfleet.watch.test_lead_reading import PATHS
from trainer.host.task_units import ONLY_SERVES
from trainer.process.ending import with_ending_file

LOG = "step 20\nworker1: the program failed: {why} (exit code {code})\n"


def worker1(state: str, below: str, *, code: int = 0, restarts: int = 0, why: str = "") -> str:
    log = LOG.format(why=why, code=code) if why else ""
    return f"{unit('worker', 1, state, below, code=code, restarts=restarts)}\n--psfleet--\n{log}"


def played() -> PlayedRun:
    """Return a run of a program without steps: ps0 and worker0 on node0, worker1 on node1."""
    return PlayedRun(decided_run(2, program={"release": "abc"}), silent=True)


def heard(run: PlayedRun, answer: str, host: str = "node1") -> list[str]:
    run.goes_on(1, [0, 0], contributions=[], last_step=0)
    return [note.text for note in run.view.add_units(host, answer, float(run.seconds))]


def troubles(run: PlayedRun) -> dict[str, str]:
    run.goes_on(1, [0, 0], contributions=[], last_step=0)
    return {
        task.name: task.trouble for task in (*run.view.now.workers, *run.view.now.serving) if task.trouble
    }


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_the_answer_of_a_host_is_parsed_with_either_kind_of_line_end(line_end: str) -> None:
    tasks = decided_run(1)["tasks"]
    failed = unit("ps", 0, "failed", "failed", code=70, restarts=2)
    log = "ps0: the program failed: ValueError: boom (exit code 70)"
    answer = "\n".join([failed, unit("worker", 0), "--psfleet--", log, "--psfleet--", "fine", ""])
    states = unit_states(tasks, answer.replace("\n", line_end))
    assert (states["ps0"].trouble, states["ps0"].exit_code, states["ps0"].restarts) == ("failed", 70, 2)
    assert states["ps0"].why == "ValueError: boom"
    assert (states["worker0"].trouble, states["worker0"].why) == ("", "")


def test_the_command_for_a_host_names_only_its_own_tasks() -> None:
    commands = unit_commands(decided_run(2), PATHS, "psfleet")
    assert set(commands) == {"node0", "node1"}
    assert "psfleet-ps@0.service psfleet-worker@0.service" in commands["node0"]
    assert "/var/log/psfleet/night/worker1.out" in commands["node1"]
    assert "worker1" not in commands["node0"]


def test_a_task_that_systemd_gave_up_is_reported_once_with_its_reason() -> None:
    run = played()
    assert heard(run, worker1("active", "running")) == []
    failed = worker1("failed", "failed", code=70, why="RuntimeError: boom")
    told = "worker1 on node1 failed, exit code 70, and systemd does not start it again: RuntimeError: boom"
    assert heard(run, failed) == [told]
    assert heard(run, failed) == []
    assert run.view.units.first_failure == told
    assert troubles(run) == {"worker1": "failed"}
    assert heard(run, worker1("active", "running")) == ["worker1 on node1 runs again"]
    assert (run.view.units.first_failure, troubles(run)) == ("", {})


def test_a_reason_of_two_tasks_is_shown_once_with_both_names() -> None:
    run = played()
    why = "NotFoundError: /data/mnist/train.csv; No such file or directory"
    units = "\n\n".join(unit(job, 0, "failed", "failed", code=70) for job in ("ps", "worker"))
    of_ps = LOG.format(why=why, code=70).replace("worker1", "ps0")
    on_node0 = f"{units}\n--psfleet--\n{of_ps}\n--psfleet--\n"
    told = [
        *heard(run, worker1("failed", "failed", code=70, why=why)),
        *heard(run, on_node0, "node0")[:1],
    ]
    assert [each.rpartition("again: ")[2] for each in told] == [why, "as worker1"]
    ended = [{"name": name, "exit_code": 70, "reason": why} for name in ("ps0", "worker0", "worker1")]
    ended[0]["reason"] = "bug"
    assert failures(ended, "did not start") == [
        "ps0 did not start, exit code 70: bug",
        f"worker0, worker1 did not start, exit code 70: {why}",
    ]


def test_a_restart_is_reported_with_its_reason() -> None:
    run = played()
    (note,) = heard(run, worker1("activating", "auto-restart", code=75, restarts=1, why="Unavailable: ps0"))
    assert note == "worker1 was restarted (1 time so far): Unavailable: ps0"
    assert troubles(run) == {"worker1": "restarting"}
    assert heard(run, worker1("active", "running", restarts=1)) == []
    assert (troubles(run), run.view.units.first_failure) == ({}, "")


@pytest.mark.parametrize("program", [None, {"release": "abc"}])
def test_a_hung_task_is_reported_once_and_shown_until_it_recovers(program: object) -> None:
    run = PlayedRun(decided_run(2, program=program), silent=True)
    run.goes_on(1, [5, 5])

    def told(now: int, heard_of_ps: int, heard_of_lead: int) -> list[str]:
        shown = f"{unit('ps', 0, heard=f'@{heard_of_ps}')}\n{unit('worker', 0, heard=f'@{heard_of_lead}')}"
        notes = run.view.add_units("node0", f"\nNow={now}\n\n{shown}\n--psfleet--\n", float(run.seconds))
        return [note.text for note in notes]

    assert told(109, 100, 109) == [] == list(troubles(run))
    assert told(110, 100, 110) == ["ps0 on node0 hangs: no sign of life for 10s; its watchdog will end it"]
    assert told(116, 100, 115) == []
    assert troubles(run) == {"ps0": "hung"}
    assert run.view.units.goes_on("ps0")
    assert told(130, 129, 90) == ["worker0 on node0 hangs: no sign of life for 40s; its watchdog will end it"]
    assert troubles(run) == {"worker0": "hung"}
    assert told(131, 131, 131) == []
    assert troubles(run) == {}


def test_a_task_without_a_watchdog_or_process_does_not_hang() -> None:
    tasks = [task for task in decided_run(1)["tasks"] if task["job"] == "ps"]
    for shown in (
        f"Now=5000\n\n{unit('ps', 0)}",
        f"Now=5000\n\n{unit('ps', 0, heard='n/a')}",
        f"Now=5\n\n{unit('ps', 0, heard='@70')}",
        f"Now=\n\n{unit('ps', 0, heard='@70')}",
        unit("ps", 0, heard="@70"),
        f"Now=5000\n\n{unit('ps', 0, 'inactive', 'dead', heard='@70')}",
    ):
        assert unit_states(tasks, shown)["ps0"].trouble == ""
    restarting = f"Now=5000\n\n{unit('ps', 0, 'activating', 'auto-restart', heard='@70')}"
    assert unit_states(tasks, restarting)["ps0"].trouble == "restarting"


def test_restarts_of_the_lead_are_not_reported_from_its_unit() -> None:
    run = played()
    answer = f"{unit('ps', 0)}\n{unit('worker', 0, restarts=3)}\n--psfleet--\n\n--psfleet--\n"
    assert heard(run, answer, "node0") == []


@pytest.mark.parametrize("answer", ["", "sudo: no", unit("worker", 0), "Id=psfleet-worker@1.service\n"])
def test_a_host_without_a_valid_answer_about_its_tasks_counts_as_silent(answer: str) -> None:
    run = played()
    notes = []
    for _ in range(int(SILENT_SECONDS) + 5):
        notes += run.goes_on(1, [0, 0], contributions=[], last_step=0)
        assert run.view.add_units("node1", answer, float(run.seconds)) == []
        run.view.add_units("node0", f"{unit('ps', 0)}\n{unit('worker', 0)}", float(run.seconds))
    assert notes == ["the host node1 does not answer: nothing is known of its tasks"]
    assert troubles(run) == {"worker1": "host does not answer"}
    assert heard(run, worker1("active", "running")) == ["the host node1 answers again"]


def test_states_of_a_built_in_model_come_from_systemd_for_ps_and_from_the_chief_for_workers() -> None:
    run = PlayedRun(decided_run(2), silent=True)
    answer = f"{unit('ps', 0, restarts=1)}\n{unit('worker', 0)}\n--psfleet--\n\n--psfleet--\n"
    assert heard(run, answer, "node0") == ["ps0 was restarted (1 time so far)"]
    assert heard(run, worker1("active", "running", restarts=2)) == []
    run.goes_on(1, [5, 5])
    assert [task.runs for task in (*run.view.now.serving, *run.view.now.workers)] == [True, False, True]
    ended = f"{unit('ps', 0, 'inactive', 'dead', restarts=1)}\n{unit('worker', 0)}"
    assert heard(run, ended, "node0") == []
    run.goes_on(1, [5, 5])
    assert (run.view.now.serving[0].runs, run.view.now.serving[0].trouble) == (False, "does not run")
    (absent,) = heard(run, ended, "node0")
    assert absent == "ps0 on node0 does not run any more, and systemd does not start it again"
    assert heard(run, ended, "node0") == []
    assert heard(run, answer, "node0") == []
    assert run.goes_on(1, [5, 5]) == [] and run.view.now.serving[0].runs
    gone = run.goes_on(int(SILENT_SECONDS) + 1, [5, 5])
    assert sorted(gone) == [
        f"the host node{host} does not answer: nothing is known of its tasks" for host in (0, 1)
    ]
    assert not run.view.now.serving[0].runs


@pytest.mark.parametrize("program", [None, {"release": "abc"}])
def test_a_task_on_a_rebooted_host_is_reported_once(program: object) -> None:
    run = PlayedRun(decided_run(2, program=program), silent=True)
    run.goes_on(1, [20, 20])
    gone = f"/etc/psfleet/run/worker-1.boot\n\n{worker1('inactive', 'dead')}"
    told = "worker1 does not run any more: node1 went down by step 40 of the run, and was booted since"
    assert [note.text for note in run.view.add_units("node1", gone, 1.0)] == [told]
    assert run.view.add_units("node1", gone, 2.0) == []
    run.goes_on(1, [20, 20])
    assert run.view.now.workers[1].trouble == "its host was rebooted"
    assert run.view.add_units("node1", worker1("active", "running"), 3.0) == []
    run.goes_on(1, [20, 20])
    assert run.view.now.workers[1].trouble == ""


NOW = 1_790_000_000


def with_step(answer: str, *, age: float = 2.0, **changes: object) -> str:
    """Return an answer of worker1's host, behind which is its newest record of steps, so old."""
    record = {"event": "step", "local_step": 900, "steps": 60, "seconds": 4.0, "wall": NOW - age, **changes}
    separated = "\n--psfleet--\n"
    return separated.join([answer.partition("\n--psfleet--")[0], "", "", f"{NOW}\n{json.dumps(record)}\n"])


def test_the_rate_of_a_programs_worker_is_that_of_its_newest_record() -> None:
    run = played()
    runs = worker1("active", "running")
    assert heard(run, with_step(runs)) == []
    (other, worker) = run_workers(run)
    assert (worker.name, worker.rate, worker.share) == ("worker1", 15.0, None)
    assert (other.name, other.rate) == ("worker0", None)
    # A worker that takes no more steps records nothing: its shown rate falls.
    heard(run, with_step(runs, age=60))
    assert [worker.rate for worker in run_workers(run)] == [None, 1.0]
    heard(run, with_step(worker1("activating", "auto-restart")))
    assert [(worker.rate, worker.trouble) for worker in run_workers(run)] == [(None, "restarting")]
    heard(run, with_step(worker1("inactive", "dead")))
    assert run_workers(run) == ()


def test_the_rate_of_the_lead_is_shown_like_those_of_others() -> None:
    run = played()
    (step,) = with_step(worker1("active", "running")).split("\n--psfleet--\n")[-1:]
    none = f"{NOW}\n"
    units = f"{unit('ps', 0)}\n{unit('worker', 0)}"
    heard(run, "\n--psfleet--\n".join([units, "", "", "", "", none, step]), "node0")
    assert [worker.rate for worker in run_workers(run)] == [15.0, None]


@pytest.mark.parametrize(
    "changes",
    [{"steps": "60"}, {"steps": -1}, {"seconds": 0.0, "age": 0.0}, {"wall": None}, {"steps": 1e300}],
)
def test_an_invalid_record_gives_no_rate(changes: dict[str, Any]) -> None:
    run = played()
    heard(run, with_step(worker1("active", "running"), **changes))
    assert run_workers(run) == ()


def test_the_rates_of_a_silent_host_are_not_shown() -> None:
    run = played()
    heard(run, with_step(worker1("active", "running")))
    run.goes_on(int(SILENT_SECONDS) + 1, [0, 0], contributions=[], last_step=0)
    assert [task.rate for task in run_workers(run) if task.name == "worker1"] == [None]


def test_the_command_for_a_host_prints_the_newest_step_record_of_each_task(tmp_path: Path) -> None:
    run = decided_run(2, program={"release": "abc"})
    events = tmp_path / "runs" / "night" / "events"
    events.mkdir(parents=True)
    lines = [{"event": "step", "steps": 5}, {"event": "step", "steps": 8}, {"event": "checkpointed"}]
    (events / "worker1.jsonl").write_text("".join(f"{compact(line)}\n" for line in lines))
    command = unit_commands(run, {**PATHS, "state_directory": str(tmp_path)}, "psfleet")["node1"]
    asked = shlex.split(command)[-1]
    printed = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, check=True).stdout
    time, record = printed.split("--psfleet--")[-1].split()
    assert time.isdecimal()
    assert json.loads(record) == {"event": "step", "steps": 8}


def compact(values: object) -> str:
    return json.dumps(values, separators=(",", ":"))


def run_workers(run: PlayedRun) -> tuple[TaskState, ...]:
    run.goes_on(1, [0, 0], contributions=[], last_step=0)
    return run.view.now.workers


def test_a_missing_task_is_shown_in_the_block_until_it_runs_again() -> None:
    """The block shows it also while the run waits for it and while its host is silent."""
    run = PlayedRun(decided_run(2), silent=True)
    gone = f"/etc/psfleet/run/worker-1.boot\n\n{worker1('inactive', 'dead')}"
    run.view.add_units("node1", worker1("active", "running"), 1.0)
    run.view.add_units("node1", gone, 31.0)
    silent = SILENT_SECONDS + 31.0
    for at, told in (
        (40.0, "node1 went down, and was booted since, for 0:39"),
        (silent, "node1 does not answer, for 0:50"),
    ):
        run.view.add_reading(Reading(progress(phase="waiting", missing=[])), at)
        assert f"worker1 is not running: {told}" in log_line(run.view.now)
    run.view.add_silence(silent + 9, "")
    assert "worker1 is not running: node1 does not answer, for 0:59" in log_line(run.view.now)
    run.view.add_units("node1", worker1("active", "running"), 90.0)
    run.view.add_reading(Reading(progress()), 91.0)
    assert "worker1 is not running" not in log_line(run.view.now)


def test_the_loss_of_a_ps_ends_a_run_of_a_built_in_model() -> None:
    run = PlayedRun(decided_run(2), silent=True)
    heard(run, worker1("failed", "failed", code=70))
    assert run.view.parameters_lost == ""
    failed = (
        f"{unit('ps', 0, 'failed', 'failed', code=70)}\n{unit('worker', 0)}\n--psfleet--\n\n--psfleet--\n"
    )
    heard(run, failed, "node0")
    assert run.view.parameters_lost.startswith("ps0 on node0 failed, exit code 70")


def test_the_lead_is_no_longer_shown_as_missing_once_its_host_answers() -> None:
    run = PlayedRun(decided_run(2), silent=True)
    answer = f"{unit('ps', 0)}\n{unit('worker', 0)}\n--psfleet--\n\n--psfleet--\n"
    run.view.add_units("node0", answer, 1.0)
    run.view.add_silence(1.0, "")
    run.view.add_silence(31.0, "")
    (lost,) = [each for each in run.view.now.away if "node0" in each]
    assert lost == "ps0, worker0 are not running: node0 does not answer, for 0:30"
    run.view.add_units("node0", answer, 32.0)
    run.view.add_reading(Reading(progress()), 33.0)
    assert not any("node0" in each for each in run.view.now.away)


def test_a_worker_that_leaves_in_order_and_joins_again_is_told_once_each() -> None:
    run = PlayedRun(decided_run(2), silent=True)
    assert heard(run, worker1("active", "running")) == []
    left = worker1("inactive", "dead", code=143)
    assert [heard(run, left) for _ in range(4)] == [
        [],
        ["worker1 on node1 left the run, which goes on"],
        [],
        [],
    ]
    run.goes_on(1, [20, 0])
    assert run.view.now.workers[1].trouble == "not in the run"
    assert run.view.now.away == ()
    assert heard(run, worker1("active", "running")) == ["worker1 on node1 joined the run"]
    run.goes_on(1, [20, 20])
    assert run.view.now.workers[1].trouble == ""


def test_a_worker_left_if_it_wrote_so_and_systemd_has_forgotten_it(tmp_path: Path) -> None:
    """The files are those that the task of the test has written."""
    endings = tmp_path / "runs" / "night" / "endings"
    for task, code in (("worker0", 143), ("worker1", 0)):
        with_ending_file(endings.parent, task, lambda ended=code: ended)  # type: ignore[misc]
    command = unit_commands(decided_run(2), {**PATHS, "state_directory": str(tmp_path)}, "psfleet")
    printed = {}
    for host in ("node0", "node1"):
        asked = shlex.split(next(part for part in command[host].split("; ") if " grep " in part))
        done = subprocess.run(asked[asked.index("timeout") :], capture_output=True, text=True, check=False)
        printed[host] = done.stdout
    assert printed == {"node0": f"{endings}/worker0.json\n", "node1": ""}
    run = PlayedRun(decided_run(2), silent=True)
    answer = f"{endings}/worker1.json\n\n{worker1('inactive', 'dead')}"
    heard(run, answer)
    assert heard(run, answer) == ["worker1 on node1 left the run, which goes on"]


def test_the_host_of_an_empty_place_may_be_silent_without_a_notice() -> None:
    run = PlayedRun(decided_run(2) | {"empty": ["worker1"]}, silent=True)
    for _ in range(int(SILENT_SECONDS) + 2):
        run.view.add_units("node0", f"{unit('ps', 0)}\n{unit('worker', 0)}", float(run.seconds))
        assert run.goes_on(1, [20, 0]) == []
    assert run.view.units.silent_hosts == ("node1",)
    assert run.view.now.workers[1].trouble == "not in the run"
    heard(run, worker1("inactive", "dead"))
    assert [heard(run, worker1("inactive", "dead")) for _ in range(3)] == [[], [], []]
    assert heard(run, worker1("active", "running")) == ["worker1 on node1 joined the run"]


@pytest.mark.parametrize("training", [{"replication": "sync"}, {"existing_servers": True}])
def test_a_worker_that_no_run_of_its_kind_may_leave_does_not_run_any_more(training: dict[str, Any]) -> None:
    run = PlayedRun(decided_run(2, **training), silent=True)
    left = worker1("inactive", "dead", code=143)
    heard(run, left)
    assert heard(run, left) == ["worker1 on node1 does not run any more, and systemd does not start it again"]


SERVING = f"{unit('worker', 1)}StatusText={ONLY_SERVES}\n"
AWAITED = {"task": "worker1", "address": "10.0.0.1:2323", "reason": "its port still answers"}


@pytest.mark.parametrize(
    ("answer", "now", "vain"),
    [
        (SERVING, {"phase": "ending", "missing": [AWAITED]}, ["worker1"]),
        (unit("worker", 1), {"phase": "ending", "missing": [AWAITED]}, []),
        # A worker that has work left may need worker 1.
        (SERVING, {"phase": "ending", "missing": [AWAITED, AWAITED | {"task": "worker2"}]}, []),
        (SERVING, {"phase": "ending", "missing": [AWAITED, {"task": "no such task"}]}, []),
        (SERVING, {"phase": "training", "missing": [AWAITED]}, []),
        (SERVING, {"phase": "ending", "missing": []}, []),
    ],
)
def test_a_lead_waits_in_vain_for_tasks_that_only_serve(
    answer: str, now: dict[str, object], vain: list[str]
) -> None:
    run = PlayedRun(decided_run(3, program={"release": "abc"}), silent=True)
    run.view.add_units("node1", f"{answer}\n--psfleet--\n", 1.0)
    run.view.add_reading(Reading(progress(**now)), 2.0)
    assert [task["name"] for task in run.view.waits_in_vain_for] == vain


def test_a_task_of_a_built_in_model_is_never_awaited_in_vain() -> None:
    run = PlayedRun(decided_run(2), silent=True)
    heard(run, f"{SERVING}\n--psfleet--\n")
    run.view.add_reading(Reading(progress(phase="ending", missing=[AWAITED])), 2.0)
    assert run.view.waits_in_vain_for == []

from collections.abc import Iterable
from typing import Any

import pytest

from trainer.exit_codes import DIVERGED
from trainer.status import Row, Status, duration
from trainer.status_table import as_lines

PLAN: dict[str, Any] = {
    "hash": "aaaaaaaaaaaa",
    "tasks": [
        {"job": "ps", "index": 0, "host": "node1"},
        {"job": "worker", "index": 0, "host": "node1"},
        {"job": "worker", "index": 1, "host": "node2"},
    ],
}
DEPLOYED = {"hash": PLAN["hash"]}
TRAINING = {"phase": "training", "global_step": 50, "last_step": 200, "loss": 0.25}


def task(name: str, state: str = "active (running)", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a task as the module trainer_tasks describes it."""
    job = name.rstrip("0123456789")
    return {
        "name": name,
        "job": job,
        "index": int(name[len(job) :]),
        "state": state,
        "alive": state.startswith(("active", "activating")),
        "failed": False,
        "exit_code": 0,
        "restarts": 0,
        "pid": 77,
        "run_id": "night-1",
        "reason": "",
        "result": "success",
        "finished": "",
        "since_seconds": 61.0,
        "memory_bytes": None,
        "cpu_seconds": None,
        "log": f"/var/log/psfleet/night-1/{name}.out",
        "log_end": "first\nthe last line\n",
        "last_step": {},
        "last_step_age_seconds": None,
        "progress": {},
        **changes,
    }


def stepping(age: float = 1.0, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    step = {"global_step": 48, "loss": 0.5, "steps_per_second": 12.0}
    return {"last_step": step, "last_step_age_seconds": age, **changes}


def answer(*tasks: dict[str, Any], deployed: dict[str, Any] = DEPLOYED) -> dict[str, Any]:
    return {"problem": "", "deployed": deployed, "tasks": list(tasks)}


def status(node1: dict[str, Any], node2: dict[str, Any] | None = None) -> Status:
    return Status.of(PLAN, {"node1": node1, "node2": node2 or answer(task("worker1"))})


def states(shown: Status) -> dict[str, str]:
    return {row.task: row.state for row in shown.rows}


def row_of(shown: Status, name: str) -> Row:
    return next(row for row in shown.rows if row.task == name)


def text(lines: Iterable[tuple[str, str]]) -> str:
    return "\n".join(line for line, _ in lines)


def test_a_run_that_goes_on() -> None:
    shown = status(answer(task("ps0"), task("worker0", **stepping(progress=TRAINING))))
    assert states(shown) == {"ps0": "running", "worker0": "running", "worker1": "running"}
    lead = row_of(shown, "worker0")
    assert (lead.global_step, lead.loss, lead.steps_per_second) == (48, 0.5, 12.0)
    assert lead.message == "the last line"
    expected = "Run night-1: training, step 50 of 200 (25%), loss 0.25, led by worker0 on node1"
    assert shown.run == expected
    assert shown.summary == "3 tasks on 2 hosts: 3 running"


def test_of_many_that_the_run_waits_for_their_number_is_told_and_the_reason_still_fits() -> None:
    missing = [{"task": f"worker{index}", "address": "", "reason": "refused"} for index in range(1, 300)]
    progress = {**TRAINING, "phase": "waiting", "missing": missing, "reason": "the barrier's word"}
    run = status(answer(task("worker0", progress=progress))).run
    assert "worker4 (refused) and 295 more, the barrier's word" in run


def test_a_worker_that_stands_still_has_no_rate_and_says_since_when() -> None:
    shown = row_of(status(answer(task("worker0", **stepping(age=200.0)))), "worker0")
    assert (shown.global_step, shown.steps_per_second) == (48, None)
    assert shown.message == "no step for 3m; the last line"


@pytest.mark.parametrize(
    ("changes", "state", "message"),
    [
        (
            {"exit_code": DIVERGED, "result": "exit-code", "reason": "diverged: loss is nan"},
            "failed",
            "exit code 65: diverged: loss is nan",
        ),
        (
            {"exit_code": DIVERGED, "result": "exit-code", "reason": "a\nb"},
            "failed",
            "exit code 65 (diverged): a b",
        ),
        ({"exit_code": 9, "result": "signal", "reason": "signal"}, "failed", "signal 9"),
        ({"exit_code": 9, "result": "oom-kill", "reason": "last"}, "failed", "oom-kill: last"),
    ],
)
def test_a_failed_task_says_why(changes: dict[str, Any], state: str, message: str) -> None:
    shown = row_of(status(answer(task("worker0", "failed (failed)", failed=True, **changes))), "worker0")
    assert (shown.state, shown.kind, shown.message) == (state, "bad", message)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (task("worker0", "activating (start)"), "starting"),
        (task("worker0", "inactive (dead)", alive=True), "starting"),
        (task("worker0", "activating (auto-restart)", exit_code=75, result="exit-code"), "restarting"),
        (task("worker0", "inactive (dead)"), "ended"),
        (task("worker0", "inactive (dead)", finished="stopped"), "stopped"),
        (task("worker0", "inactive (dead)", exit_code=143), "stopped"),
        (task("worker0", "inactive (dead)", run_id=""), "no run yet"),
    ],
)
def test_the_state_of_a_task_in_a_word(found: dict[str, Any], state: str) -> None:
    assert states(status(answer(found)))["worker0"] == state


def test_a_restarting_task_says_how_it_ended_before() -> None:
    found = task("worker0", "activating (auto-restart)", exit_code=75, result="exit-code")
    assert row_of(status(answer(found)), "worker0").message == (
        "after exit code 75 (cluster_broke): the last line"
    )


def test_a_host_that_gives_no_answer_does_not_hide_the_others() -> None:
    shown = status(answer(task("ps0"), task("worker0")), {"problem": "could not log in: refused"})
    assert states(shown) == {"ps0": "running", "worker0": "running", "worker1": "unreachable"}
    assert shown.notes == ("node2 gave no answer: could not log in: refused",)
    assert shown.answered


def test_no_host_answers() -> None:
    silent = {"problem": "could not log in: refused"}
    shown = Status.of(PLAN, {"node1": silent, "node2": {}})
    assert not shown.answered
    assert set(states(shown).values()) == {"unreachable"}
    assert shown.run == ""


def test_before_any_deployment() -> None:
    missing = {"failed": True, "run_id": "", "reason": "its unit is not-found"}
    bare = answer(task("worker1", "inactive (dead)", **missing), deployed={})
    shown = status(answer(task("ps0", "inactive (dead)", **missing), deployed={}), bare)
    assert set(states(shown).values()) == {"not deployed"}
    assert shown.notes == ("Not deployed: node1, node2. `ansible-playbook deploy.yml` makes them ready.",)
    assert shown.run == ""


def test_a_task_that_is_new_in_the_inventory() -> None:
    new = task("worker1", "inactive (dead)", failed=True, run_id="", reason="its unit is not-found")
    shown = status(answer(), answer(new, deployed={"hash": "bbbbbbbbbbbb"}))
    assert row_of(shown, "worker1").message == "its unit is not-found; deploy.yml writes it"
    assert shown.notes == (
        "The plan deployed on node2 is not today's inventory: run deploy.yml between runs.",
    )


def test_no_run_yet() -> None:
    idle = task("worker0", "inactive (dead)", run_id="")
    shown = status(answer(idle), answer(task("worker1", "inactive (dead)", run_id="")))
    assert shown.run == "No run yet: `ansible-playbook train.yml` starts one."


def test_a_task_of_an_earlier_run_takes_no_part_in_this_one() -> None:
    old = task("ps0", "inactive (dead)", run_id="old", **stepping())
    shown = row_of(status(answer(old, task("worker0", progress=TRAINING))), "ps0")
    assert (shown.message, shown.global_step) == ("not in this run; its last was old", None)


def test_tasks_beside_the_plan_are_shown_where_they_belong_to_the_run_or_are_alive() -> None:
    others = [
        task("server0", "inactive (dead)"),
        task("server1", "inactive (dead)", run_id="old"),
        task("worker7", run_id="stray"),
    ]
    assert states(status(answer(task("worker0"), *others))).keys() == {
        "ps0",
        "worker0",
        "worker1",
        "worker7",
        "server0",
    }


def test_the_run_of_a_program_is_led_by_its_chief() -> None:
    chief = task("chief0", progress={"phase": "training"})
    worker = task("worker0", progress={"phase": "waiting"})
    assert status(answer(worker, chief)).run == "Run night-1: training, led by chief0 on node1"


def test_a_lead_that_ended_before_it_said_so() -> None:
    found = task("worker0", "failed (failed)", failed=True, result="signal", exit_code=9, progress=TRAINING)
    assert status(answer(found)).run.startswith("Run night-1: training until worker0 failed, step 50")


def test_the_lead_may_be_left_out_by_limit() -> None:
    shown = Status.of(PLAN, {"node2": answer(task("worker1"))})
    assert shown.run == "Run night-1: --limit leaves out the task that leads it"
    assert shown.notes == ("Left out by --limit: node1.",)
    assert [row.task for row in shown.rows] == ["worker1"]


def test_what_a_host_says_does_not_steer_the_terminal() -> None:
    bad = task("worker0", log_end="\x1b[2Jboo\x07\n", run_id="x\x1b[2J", progress={"phase": "\x1b[2J"})
    lines = as_lines(status(answer(bad), {"problem": "\x1b[2J"}), 80, verbose=True)
    assert text(lines).replace("\n", "").isprintable()


def many(count: int) -> Status:
    tasks = [
        {"job": "worker", "index": index, "host": f"node{index}.lab.example.org"} for index in range(count)
    ]
    reason = "diverged: loss is nan at local step 4, global step 9; the learning rate is 100000"
    failing = {"failed": True, "exit_code": DIVERGED, "result": "exit-code", "reason": reason}
    return Status.of(
        {"hash": "aaaaaaaaaaaa", "tasks": tasks[::-1]},
        {
            str(planned["host"]): answer(
                task(f"worker{planned['index']}", "failed (failed)", **stepping(), **failing)
            )
            for planned in tasks
        },
    )


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    lines = text(as_lines(many(300), columns)).splitlines()
    assert max(map(len, lines)) <= columns
    assert [line.split()[0] for line in lines[1:301]] == [f"worker{index}" for index in range(300)]
    assert lines[-1] == "300 tasks on 300 hosts: 300 failed"
    assert len(lines) < 301 + 50


def test_without_a_terminal_nothing_is_cut_or_said_twice() -> None:
    lines = text(as_lines(many(2), 0))
    assert lines.count("node1.lab.example.org  failed") == 1
    assert lines.count("the learning rate is 100000") == 2


def test_a_reason_that_the_table_cuts_is_said_in_full() -> None:
    cut = " ".join(text(as_lines(many(1), 80)).split())
    assert (
        "worker0 on node0.lab.example.org failed: exit code 65: diverged: loss is nan at local step 4" in cut
    )
    assert cut.endswith("the learning rate is 100000 1 task on 1 host: 1 failed")


def test_more_of_each_task_where_it_is_asked_for() -> None:
    found = task("worker0", memory_bytes=2**29, cpu_seconds=12.34)
    shown = text(as_lines(status(answer(found)), 80, verbose=True))
    detail = (
        "  psfleet-worker@0.service  pid 77  memory 512 MiB  CPU 12.3 s  /var/log/psfleet/night-1/worker0.out"
    )
    assert detail in shown.splitlines()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0s"), (59.9, "59s"), (60, "1m"), (3600, "1h00m"), (90061, "1d01h"), (-5, "0s")],
)
def test_how_long(seconds: float, said: str) -> None:
    assert duration(seconds) == said

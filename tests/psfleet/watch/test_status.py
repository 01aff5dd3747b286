from typing import Any

import pytest
from rich.text import Text

from psfleet.watch.console import PlaybookConsole
from psfleet.watch.screen_text import duration
from psfleet.watch.status import ClusterStatus, TaskRow
from psfleet.watch.status_table import status_table
from trainer.contract.exit_codes import DIVERGED

PLAN: dict[str, Any] = {
    "hash": "aaaaaaaaaaaa",
    "tasks": [
        {"job": "ps", "index": 0, "host": "node1"},
        {"job": "worker", "index": 0, "host": "node1"},
        {"job": "worker", "index": 1, "host": "node2"},
    ],
}
DEPLOYED = {"hash": PLAN["hash"]}
STEP = ("global_step", "loss", "steps_per_second")
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
        "begun": "",
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
        "sign_of_life_age_seconds": 0.4,
        "progress": {},
        "refused": None,
        **changes,
    }


def stepping(age: float = 1.0, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    step = {"global_step": 48, "loss": 0.5, "steps_per_second": 12.0}
    return {"last_step": step, "last_step_age_seconds": age, **changes}


def answer(*tasks: dict[str, Any], deployed: dict[str, Any] = DEPLOYED) -> dict[str, Any]:
    return {"problem": "", "deployed": deployed, "tasks": list(tasks)}


def status(node1: dict[str, Any], node2: dict[str, Any] | None = None) -> ClusterStatus:
    return ClusterStatus.of(PLAN, {"node1": node1, "node2": node2 or answer(task("worker1"))})


def states(shown: ClusterStatus) -> dict[str, str]:
    return {row.task: row.state for row in shown.rows}


def row_of(shown: ClusterStatus, name: str) -> TaskRow:
    return next(row for row in shown.rows if row.task == name)


def lines(shown: ClusterStatus, columns: int = 0, *, verbose: bool = False) -> list[str]:
    console = PlaybookConsole(columns)
    return console.lines(*status_table(shown, console, verbose=verbose))


def test_a_run_that_is_going_on_is_shown_with_its_tasks_and_progress() -> None:
    shown = status(answer(task("ps0"), task("worker0", **stepping(progress=TRAINING))))
    assert states(shown) == {"ps0": "running", "worker0": "running", "worker1": "running"}
    lead = row_of(shown, "worker0")
    assert [lead.figures[name] for name in STEP] == [48, 0.5, 12.0]
    assert lead.message == "the last line"
    expected = "Run night-1: training, step 50 of 200 (25%), loss 0.25, led by worker0 on node1"
    assert shown.run == expected
    assert shown.summary == "3 tasks on 2 hosts: 3 running"
    begun = "ana@desk, 2026-11-25 09:12 UTC"
    found = {"evaluation": {"global_step": 40, "metrics": {"auc": 0.77}}}
    evaluated = task("worker0", **stepping(progress=TRAINING | found))
    assert status(answer(evaluated)).run == expected.replace(
        "led by", "evaluated: auc 0.77 at step 40, led by"
    )
    lead_task = task("worker0", begun=begun, **stepping(progress=TRAINING))
    assert status(answer(lead_task)).run == f"{expected}, begun by {begun}"


def test_what_a_ps_holds_of_tables_is_of_its_run() -> None:
    def shown(name: str, run_id: str) -> list[Any]:
        tasks = [task("worker0"), task(name, run_id=run_id)]
        held = {"": {"ps0": 7_000_000}, "night-1": {"ps0": 33_800_000}}
        found = ClusterStatus.of(PLAN, {"node1": answer(*tasks)}, table_bytes=held)
        return [row_of(found, name).figures.get("held_bytes"), lines(found, 100)]

    held, table = shown("ps0", "night-1")
    assert held == 33_800_000
    assert table[0].split()[-4:-2] == ["WILL", "HOLD"]
    assert "33.8 MB" in table[1]
    assert shown("ps0", "night-0")[0] is None
    next_run = ClusterStatus.of(
        PLAN, {"node1": answer(task("ps0", run_id=""))}, table_bytes={"": {"ps0": 7_000_000}}
    )
    assert row_of(next_run, "ps0").figures["held_bytes"] == 7_000_000


def test_many_missing_tasks_are_abbreviated_before_the_reason() -> None:
    missing = [{"task": f"worker{index}", "address": "", "reason": "refused"} for index in range(1, 300)]
    progress = {**TRAINING, "phase": "waiting", "missing": missing, "reason": "the barrier's word"}
    run = status(answer(task("worker0", progress=progress))).run
    assert "worker4 (refused) and 295 more, the barrier's word" in run


def test_lost_steps_and_time_without_training_are_shown() -> None:
    progress = {**TRAINING, "steps_lost": 948, "still_seconds": 12.4}
    run = status(answer(task("worker0", progress=progress))).run
    assert "led by worker0 on node1, 948 steps lost by faults, 12 s without training" in run
    free = {**TRAINING, "steps_lost": 0, "still_seconds": 0.2}
    assert "faults" not in status(answer(task("worker0", progress=free))).run


def test_a_task_without_a_sign_of_life_is_hung_and_has_no_rate() -> None:
    shown = row_of(status(answer(task("worker0", **stepping(sign_of_life_age_seconds=12.0)))), "worker0")
    assert (shown.state, shown.style) == ("hung", "bad")
    assert shown.figures["steps_per_second"] is None
    assert shown.message == "no sign of life for 12s; the last line"
    quick = row_of(status(answer(task("worker0", **stepping(sign_of_life_age_seconds=9.0)))), "worker0")
    assert (quick.state, quick.figures["steps_per_second"]) == ("running", 12.0)


def test_a_worker_that_stands_still_has_no_rate_and_shows_the_duration() -> None:
    shown = row_of(status(answer(task("worker0", **stepping(age=200.0)))), "worker0")
    assert [shown.figures[name] for name in STEP] == [48, 0.5, None]
    assert shown.message == "no step for 3m; the last line"
    done = task("worker0", **stepping(age=200.0) | {"finished": "last step"})
    assert row_of(status(answer(done)), "worker0").message == "the last line"


@pytest.mark.parametrize(
    ("code", "result", "reason", "message"),
    [
        (DIVERGED, "exit-code", "diverged: loss is nan", "exit code 65: diverged: loss is nan"),
        (DIVERGED, "exit-code", "a\nb", "exit code 65 (diverged): a b"),
        (9, "signal", "signal", "signal 9"),
        (9, "oom-kill", "last", "oom-kill: last"),
    ],
)
def test_a_failed_task_shows_the_reason(code: int, result: str, reason: str, message: str) -> None:
    ended = {"failed": True, "exit_code": code, "result": result, "reason": reason}
    shown = row_of(status(answer(task("worker0", "failed (failed)", **ended))), "worker0")
    assert (shown.state, shown.style, shown.message) == ("failed", "bad", message)


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
def test_each_state_of_a_task_has_its_word(found: dict[str, Any], state: str) -> None:
    assert states(status(answer(found)))["worker0"] == state


def test_a_restarting_task_shows_its_last_exit_code() -> None:
    found = task("worker0", "activating (auto-restart)", exit_code=75, result="exit-code")
    assert row_of(status(answer(found)), "worker0").message == (
        "after exit code 75 (cluster_broke): the last line"
    )


def test_a_host_without_an_answer_does_not_hide_the_others() -> None:
    shown = status(answer(task("ps0"), task("worker0")), {"problem": "could not log in: refused"})
    assert states(shown) == {"ps0": "running", "worker0": "running", "worker1": "unreachable"}
    assert shown.notes == ("node2 gave no answer: could not log in: refused",)
    assert not shown.failure


def test_a_cluster_without_answers_is_a_failure_with_a_remedy() -> None:
    silent = {"problem": "could not log in: Host key verification failed."}
    shown = ClusterStatus.of(PLAN, {"node1": silent, "node2": silent})
    told, remedy = shown.notes
    assert told == f"node1, node2 gave no answer: {silent['problem']}"
    assert remedy.startswith("-> ~/.ssh/known_hosts has no key of that address")
    assert shown.failure
    assert set(states(shown).values()) == {"unreachable"}
    assert shown.run == ""


def test_without_a_deployment_the_status_names_deploy_yml() -> None:
    missing = {"failed": True, "run_id": "", "reason": "its unit is not-found"}
    bare = answer(task("worker1", "inactive (dead)", **missing), deployed={})
    shown = status(answer(task("ps0", "inactive (dead)", **missing), deployed={}), bare)
    assert set(states(shown).values()) == {"not deployed"}
    assert shown.notes == ("Not deployed: node1, node2. `ansible-playbook deploy.yml` makes them ready.",)
    assert shown.run == ""


def test_refused_connections_are_shown_for_each_task() -> None:
    shown = status(
        answer(task("ps0", refused=3), task("worker0", refused=0)), answer(task("worker1", refused=1))
    )
    assert shown.notes == (
        "The port fence refused 3 connections to ps0 on node1, 1 connection to worker1 on node2.",
    )


def test_a_new_task_of_the_inventory_needs_a_deployment() -> None:
    new = task("worker1", "inactive (dead)", failed=True, run_id="", reason="its unit is not-found")
    shown = status(answer(), answer(new, deployed={"hash": "bbbbbbbbbbbb"}))
    assert row_of(shown, "worker1").message == "its unit is not-found; deploy.yml writes it"
    assert shown.notes == (
        "The plan deployed on node2 is not today's inventory: run deploy.yml between runs.",
    )


def test_without_a_run_the_status_names_train_yml() -> None:
    idle = task("worker0", "inactive (dead)", run_id="")
    shown = status(answer(idle), answer(task("worker1", "inactive (dead)", run_id="")))
    assert shown.run == "No run yet: `ansible-playbook train.yml` starts one."


def test_a_task_of_an_earlier_run_is_shown_as_not_in_this_run() -> None:
    old = task("ps0", "inactive (dead)", run_id="old", **stepping())
    shown = row_of(status(answer(old, task("worker0", progress=TRAINING))), "ps0")
    assert (shown.message, shown.figures.get("global_step")) == ("not in this run; its last was old", None)


def test_tasks_beside_the_plan_are_shown_if_they_are_alive_or_in_the_run() -> None:
    others = [
        task("server0", "inactive (dead)"),
        task("server1", "inactive (dead)", run_id="old"),
        task("worker7", run_id="stray"),
    ]
    shown = states(status(answer(task("worker0"), *others)))
    assert shown.keys() == {"ps0", "worker0", "worker1", "worker7", "server0"}


def test_the_run_of_a_program_is_led_by_its_chief() -> None:
    chief = task("chief0", progress={"phase": "training"})
    worker = task("worker0", progress={"phase": "waiting"})
    assert status(answer(worker, chief)).run == "Run night-1: training, led by chief0 on node1"


def test_a_run_with_a_failed_lead_is_shown_as_training_until_its_failure() -> None:
    found = task("worker0", "failed (failed)", failed=True, result="signal", exit_code=9, progress=TRAINING)
    assert status(answer(found)).run.startswith("Run night-1: training until worker0 failed, step 50")


def test_the_status_states_that_limit_leaves_out_the_lead() -> None:
    shown = ClusterStatus.of(PLAN, {"node2": answer(task("worker1"))})
    assert shown.run == "Run night-1: --limit leaves out the task that leads it"
    assert shown.notes == ("Left out by --limit: node1.",)
    assert [row.task for row in shown.rows] == ["worker1"]


def test_texts_of_a_host_are_made_printable() -> None:
    bad = task("worker0", log_end="\x1b[2Jboo\x07\n", run_id="x\x1b[2J", progress={"phase": "\x1b[2J"})
    shown = lines(status(answer(bad), {"problem": "\x1b[2J"}), 80, verbose=True)
    assert all(line.isprintable() for line in shown)


def test_texts_of_a_host_are_shortened() -> None:
    long = task("worker0", log="/x" * 50_000, log_end="x" * 100_000, run_id="x" * 100_000)
    assert sum(map(len, lines(status(answer(long)), 80, verbose=True))) < 10_000


def shown_80() -> ClusterStatus:
    worker = task("worker0", restarts=2, **stepping(progress=TRAINING))
    return status(answer(task("ps0"), worker), {"problem": "could not log in: refused by its sshd"})


def test_the_table_has_the_columns_that_have_values_and_fit() -> None:
    assert lines(shown_80(), 80)[:5] == [
        "TASK     HOST   STATE        SINCE  RESTARTS  STEP  LOSS  STEPS/S  LAST MESSAGE",
        "ps0      node1  running         1m         -     -     -        -  the last line",
        "worker0  node1  running         1m         2    48   0.5     12.0  the last line",
        "worker1  node2  unreachable      -         -     -     -        -  could not lo…",
        "",
    ]
    assert "worker1 on node2" not in "\n".join(lines(shown_80(), 80))  # its host has a note
    # No task was restarted, and too little of a message would fit.
    assert lines(status(answer(task("worker0", **stepping()))), 54)[0].split() == [
        *("TASK", "HOST", "STATE", "SINCE", "STEP", "LOSS", "STEPS/S")
    ]


def test_each_task_has_the_colour_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psfleet.watch.console.ANSIBLE_COLOR", True)
    failed = task("ps0", "failed (failed)", failed=True, result="signal", exit_code=9)
    coloured = lines(status(answer(failed, task("worker0", "activating (start)")), {"problem": "?"}), 80)
    assert [line[:8] for line in coloured[1:4]] == ["\x1b[31mps0", "\x1b[36mwor", "\x1b[33mwor"]


def many(count: int, *, alike: bool = False) -> ClusterStatus:
    tasks = [
        {"job": "worker", "index": index, "host": f"node{index}.lab.example.org"} for index in range(count)
    ]
    failing = {"failed": True, "exit_code": DIVERGED, "result": "exit-code"}

    def reason(index: int) -> str:
        step = 4 if alike else 4 + index
        return f"diverged: loss is nan at local step {step}, global step 9; the learning rate is 100000"

    return ClusterStatus.of(
        {"hash": "aaaaaaaaaaaa", "tasks": tasks[::-1]},
        {
            str(planned["host"]): answer(
                task(f"worker{index}", "failed (failed)", **stepping(), **failing, reason=reason(index))
            )
            for planned in tasks
            if (index := int(str(planned["index"]))) >= 0
        },
    )


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    shown = lines(many(300), columns)
    assert max(map(len, shown)) <= columns
    assert [line.split()[0] for line in shown[1:301]] == [f"worker{index}" for index in range(300)]
    assert shown[-1] == "300 tasks on 300 hosts: 300 failed"
    assert "and 290 more; `ansible-playbook status.yml | cat` cuts none" in " ".join(shown)
    assert len(shown) < 301 + 50


def test_a_reason_of_many_tasks_is_shown_once_below_the_table() -> None:
    shown = " ".join(" ".join(lines(many(12, alike=True), 80)).split())
    assert shown.count("the learning rate is 100000") == 1
    assert "worker9 on node9.lab.example.org and 2 more failed: exit code 65: diverged: loss is nan" in shown


def test_without_a_terminal_messages_are_complete_and_not_repeated() -> None:
    shown = "\n".join(lines(many(2)))
    assert shown.count("node1.lab.example.org  failed") == 1
    assert shown.count("the learning rate is 100000") == 2


def test_a_reason_that_the_table_cuts_is_shown_in_full_below() -> None:
    cut = " ".join(" ".join(lines(many(1), 80)).split())
    assert (
        "worker0 on node0.lab.example.org failed: exit code 65: diverged: loss is nan at local step 4" in cut
    )
    assert cut.endswith("the learning rate is 100000 1 task on 1 host: 1 failed")


def test_verbose_output_shows_memory_cpu_unit_and_log_of_each_task() -> None:
    found = task("worker0", memory_bytes=2**29, cpu_seconds=12.34)
    (shown,) = (line for line in lines(status(answer(found)), verbose=True) if "psfleet-worker@0" in line)
    log = "/var/log/psfleet/night-1/worker0.out"
    assert shown.split() == ["worker0", "77", "512", "MiB", "12.3", "s", "psfleet-worker@0.service", log]
    # A path is there as a whole, to be copied.
    assert log in "".join("".join(lines(status(answer(found)), 70, verbose=True)).split())


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0s"), (59.9, "59s"), (60, "1m"), (3600, "1h00m"), (90061, "1d01h"), (-5, "0s")],
)
def test_durations_are_shown_with_units(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_uncollected_runs_are_named_unless_they_are_going_on() -> None:
    answers = {"node1": answer(task("worker0")), "node2": answer()}
    shown = ClusterStatus.of(PLAN, answers, {"monday": [], "night-1": []})
    told = "Run monday is over and not collected: ansible-playbook train.yml -e run_id=monday"
    assert [note for note in shown.notes if note.startswith("Run ")] == [told]


def test_a_run_is_not_over_while_a_host_that_may_run_it_is_silent() -> None:
    silent = {"problem": "no route to host"}
    answers = {"node1": answer(task("worker0")), "node2": silent}
    shown = ClusterStatus.of(PLAN, answers, {"monday": []})
    (note,) = [note for note in shown.notes if note.startswith("Run ")]
    assert note.startswith("Run monday is not collected, and may still be going on at node2: ")


def test_a_run_of_another_inventory_may_still_be_going_on() -> None:
    shown = ClusterStatus.of(PLAN, {"node1": answer(task("worker0"))}, {"monday": ["far1", "far2"]})
    (note,) = [note for note in shown.notes if note.startswith("Run ")]
    assert note.startswith("Run monday may still be going on: it has tasks on far1, far2, which")


def test_blanks_of_a_host_take_time_in_proportion_to_their_number() -> None:
    """A search that begins at each blank would take many minutes for these."""
    console = PlaybookConsole(0)
    text = f"a{' ' * 90_000}b"
    assert console.lines(*[Text(text)] * 20, Text("c   ")) == [*[text] * 20, "c"]


@pytest.mark.parametrize("field", ["reason", "log", "log_end", "finished"])
def test_long_texts_of_a_host_are_shown_in_short(field: str) -> None:
    text = " " * 50_000 + "x" + " " * 50_000 + "y" * 100_000
    for state in ("active (running)", "failed (Result: exit-code)", "activating (auto-restart)"):
        row = task("worker0", state, failed=state.startswith("failed")) | {field: text}
        shown = lines(status(answer(task("ps0"), row)), 80, verbose=True)
        assert sum(map(len, shown)) < 5000

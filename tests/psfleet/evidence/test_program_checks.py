"""Runs of a user's program: completed, proven by its own records, or neither."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from psfleet.evidence.answer import size
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.cases import Case, Damage, cases, checks_named, do
from tests.psfleet.evidence.folder_damages import set_losses, take_no_step
from tests.psfleet.evidence.program_folders import BYTES, end, ending, endings
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    fail,
    leave_out,
    lose,
    records,
    remove,
    rewrite,
    steps_and_others,
    verdict_of,
    write,
)
from trainer.contract.plan import ClusterPlan, Job, PlannedTask

BOTH = "worker0 worker1"
GOALS = {"weight": {"minimum": 1.8, "maximum": 2.2}, "bias": {"minimum": 9.8}}
REBOOTED = "its host went down, and was booted since; the last step that it recorded is 400"
SIZES = {None: "-", True: "-", 0: "0 bytes", 999: "999 bytes", 1000: "1 kB", 12_500: "12.5 kB"}
SIZES |= {4 * 10**6: "4 MB", 7 * 10**9: "7 GB", 10**18: "1e+06 TB", 10**400: "1e+06 TB"}


def let_the_ps_train(run: Path) -> None:
    """Let ps 0 have made all steps, and the workers none."""
    steps, _ = steps_and_others(run, "worker0", "step")
    take_no_step(run, "worker0 worker1")
    rewrite(run, "ps0", [record | {"job": "ps"} for record in steps])


def plan(run: Path, *names: str) -> None:
    """Let the run have had these tasks, which all ended well by themselves."""
    jobs = [(cast("Job", name[:-1]), int(name[-1])) for name in names]
    tasks = (PlannedTask(job, index, f"host{port}", "::1", port) for port, (job, index) in enumerate(jobs, 1))
    write(run, "plan.json", json.dumps(ClusterPlan("test", tuple(tasks)).to_json()))
    write(run, "tasks.json", json.dumps([ending(name, 0, **BYTES) for name in names]))
    for name in names:
        write(run, f"logs/{name}.out", "")


def lose_an_ending(run: Path) -> None:
    (run / "tasks.json").write_text(json.dumps(endings(run)[:-1]))


def spoil_an_entry(run: Path) -> None:
    (run / "tasks.json").write_text(json.dumps([*endings(run), 3]))


TASKS_ENDED_WELL = {
    "a host that went down": Case(
        do(end, "worker1", failed=True, ended_by="host", reason=REBOOTED), 1, f"worker1 was lost: {REBOOTED}"
    ),
    "a failure in the records": Case(
        do(fail, "worker1", "no more data"),
        1,
        "worker1 recorded that it failed: no more data",
        kind="program",
    ),
    "a worker that failed": Case(
        do(end, "worker1", failed=True, exit_code=1, reason="line 1\nValueError: bad data"),
        1,
        "\nworker1 failed with exit code 1: line 1 ... ValueError: bad data\n",
        headline="the program did not end well on every task",
    ),
    "a lead that was stopped": Case(do(end, "worker0", exit_code=143), 1, "worker0 was ended by a playbook"),
    "a task that still runs": Case(do(end, "ps0", alive=True, exit_code=0), 1, "ps0 was still running"),
    "a worker that was restarted": Case(
        do(end, "worker1", restarts=2), 0, "worker1 ended by itself, started again 2 times"
    ),
    "a ps that was killed": Case(
        do(end, "ps0", failed=True, exit_code=137), 1, "\nps0 failed with exit code 137\n"
    ),
    "an end that nobody tells": Case(lose_an_ending, 2, "tasks.json does not say how ps0 ended"),
    "ends that nobody tells": Case(do(remove, "tasks.json"), 2, "tasks.json: No such file"),
    "no list of ends": Case(do(write, "tasks.json", '{"name": "ps0"}'), 2, "\ntasks.json: not a JSON list\n"),
    "an exit code that is none": Case(
        do(end, "ps0", exit_code="well"),
        2,
        "\ntasks.json, entry 2: exit_code is 'well'; expected a whole number >= 0 or null\n",
    ),
    "an entry that is none": Case(spoil_an_entry, 2, "\ntasks.json, entry 3: 3 is not an object\n"),
    "a task that never started": Case(do(remove, "logs/worker1.out"), 2, "worker1 left no log"),
    "a lead that a playbook ended, and that systemd had forgotten": Case(
        do(end, "worker0", exit_code=0, ended_by="psfleet"), 1, "worker0 was ended by a playbook"
    ),
    "a task of whose end nobody knows": Case(
        do(end, "worker0", exit_code=None, ended_by="itself"), 2, "it is unknown how worker0 ended"
    ),
}
TASKS_EXCHANGED = {
    "less, and no more asked for": Case(
        do(end, "worker1", bytes_received=120), 0, asked={"minimum_exchanged_bytes": 120}
    ),
    "nothing received": Case(
        do(end, "worker1", bytes_received=120, bytes_sent=90000),
        1,
        "worker1 received 120 bytes and sent 90000",
    ),
    "nothing sent": Case(
        do(end, "worker1", bytes_received=90000, bytes_sent=65535), 1, "expected at least 65536 each way"
    ),
}


@cases("silent", tasks_ended_well=TASKS_ENDED_WELL, tasks_exchanged=TASKS_EXCHANGED)
def test_each_way_in_which_tasks_ended_gets_its_answer(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


WITHOUT_RECORDS = {"tasks_ended_well", "tasks_exchanged"}


def not_shown(run: Path, /, **settings: object) -> str:
    return "\n".join(verdict_of(run, **settings).not_shown)


def test_a_program_without_records_is_completed_and_the_open_questions_are_named(silent: Path) -> None:
    verdict = verdict_of(silent)
    assert (verdict.verdict, verdict.exit_code) == ("completed", 0), verdict.failing
    assert checks(verdict, True) == WITHOUT_RECORDS
    assert verdict.headline == (
        "COMPLETED: the program ended well on 3 tasks; it is not shown that the workers trained one model"
        " together"
    )
    ended, exchanged = verdict.checks
    assert ended.detail == "worker0 ended by itself, ps0 was ended by a playbook; worker1 ended by itself"
    by_itself = dict.fromkeys(("worker0", "worker1"), "ended by itself")
    assert ended.evidence == {"tasks": {"ps0": "was ended by a playbook", **by_itself}}
    assert exchanged.detail.startswith("ps0 received 500 kB, sent 400 kB; worker0 received ")
    assert exchanged.evidence["ps0"] == BYTES
    said = not_shown(silent)
    for sentence in (
        "the workers trained one model together: the program leaves no records of its steps",
        "what the tasks exchanged were parameters and gradients: bytes are counted, not read",
        "the loss fell: the program recorded no losses",
        "the model is good enough for anything: training_evidence_goals is empty",
    ):
        assert f"It is not shown that {sentence}" in said
    kinds = dict.fromkeys(kind for _, kind in as_lines(verdict, silent))
    assert list(kinds) == ["headline", "figure", "ok", "open", "failed"], "and no model came home"


def test_missing_byte_counts_are_named_and_not_required(silent: Path) -> None:
    end(silent, "worker1", bytes_received=None, bytes_sent=None)
    assert "It is not shown that worker1 exchanged anything" in not_shown(silent)
    assert "tasks_exchanged" in checks(verdict_of(silent), True)
    for name in ("ps0", "worker0"):
        end(silent, name, bytes_received=None, bytes_sent=None)
    verdict = verdict_of(silent)
    assert verdict.verdict == "completed"
    assert checks(verdict, True, False, None) == {"tasks_ended_well"}
    assert "exchanged anything with the others: systemd did not count the bytes" in not_shown(silent)


def test_interrupted_and_restarted_work_is_named(silent: Path) -> None:
    end(silent, "worker1", exit_code=143, restarts=2)
    said = not_shown(silent)
    assert "worker1 had done its work: it still ran, and a playbook ended it" in said
    assert "worker1 went on where it had been: it was started again 2 times" in said
    assert "ps0 had done its work" not in said
    for name in ("ps0", "worker0"):
        end(silent, name, alive=True)
    assert "worker1 had done its work" in not_shown(silent)


def test_a_sigterm_that_no_playbook_sent_is_reported_as_such(silent: Path) -> None:
    end(silent, "worker1", exit_code=143, ended_by="itself")
    said = "worker1 had done its work: it was ended by SIGTERM, which no playbook sent"
    assert said in not_shown(silent)
    assert said.partition(": it ")[2] in detail(verdict_of(silent), "tasks_ended_well")


def test_chief0_must_end_by_itself_and_workers_need_not(silent: Path) -> None:
    """If there is a chief0, the run ends with it, and train.yml may end the workers."""
    plan(silent, "ps0", "worker0", "worker1", "chief0")
    for name in ("ps0", "worker0", "worker1"):
        end(silent, name, exit_code=143)
    verdict = verdict_of(silent)
    assert verdict.verdict == "completed", verdict.failing
    assert "chief0 ended by itself" in detail(verdict, "tasks_ended_well")
    end(silent, "chief0", exit_code=143)
    assert verdict_of(silent).exit_code == 1
    assert "chief0 had done its work" in not_shown(silent)


def test_a_program_of_one_worker_need_not_share(recorded: Path) -> None:
    ps, worker, _ = ClusterPlan.from_json(json.loads((recorded / "plan.json").read_text())).tasks
    plan = ClusterPlan("test", (ps, worker))
    (recorded / "plan.json").write_text(json.dumps(plan.to_json()))
    lose(recorded, "worker1")
    edit(recorded, "worker0", "", plan_hash=plan.hash)
    verdict = verdict_of(recorded)
    assert "tasks_exchanged" in checks(verdict, True)
    assert verdict.headline == "PROVEN: by the records of the program 1 worker trained, and it learned"


@pytest.mark.parametrize(("count", "said"), SIZES.items())
def test_bytes_are_shown_with_units(count: object, said: str) -> None:
    assert size(count) == said


def test_a_plan_of_a_chief_and_a_ps_without_workers_is_judged(silent: Path) -> None:
    plan(silent, "ps0", "chief0")
    assert verdict_of(silent).verdict == "completed"
    plan(silent, "ps0")
    assert "it has no worker and no chief" in verdict_of(silent).checks[0].detail


def test_an_evaluator_is_outside_of_the_exchange_but_must_end_well(silent: Path) -> None:
    plan(silent, "ps0", "worker0", "worker1", "chief0", "evaluator0")
    end(silent, "evaluator0", bytes_received=90_000, bytes_sent=500)
    verdict = verdict_of(silent)
    assert verdict.verdict == "completed", verdict.failing
    assert "evaluator0 ended by itself" in detail(verdict, "tasks_ended_well")
    assert "evaluator0" not in detail(verdict, "tasks_exchanged")
    end(silent, "evaluator0", exit_code=143)
    assert "evaluator0 had done its work: it still ran, and a playbook ended it" in not_shown(silent)
    end(silent, "evaluator0", exit_code=70, failed=True, reason="ValueError: no such feature")
    assert verdict_of(silent).exit_code == 1


def test_a_program_that_resumes_a_trained_model_is_proven_by_a_goal(recorded: Path) -> None:
    set_losses(recorded, lambda _: 1e-12)
    assert verdict_of(recorded).verdict == "completed"
    verdict = verdict_of(recorded, goals=GOALS)
    assert verdict.verdict == "proven", verdict.failing
    assert any("It is not shown that the loss fell: " in said for said in verdict.not_shown)
    assert checks(verdict_of(recorded, minimum_loss_reduction=0.2), False) == {"loss_fell"}


def test_goals_are_compared_with_the_last_evaluation(recorded: Path) -> None:
    assert checks(verdict_of(recorded, goals={"weight": {"maximum": 1}}), False) == {"goals_reached"}
    missed = verdict_of(
        recorded, goals={"weight": {"maximum": 1}}, log_patterns=[{"tasks": "*", "pattern": "x y"}]
    )
    assert missed.headline == "NOT PROVEN: the program's records contradict it"
    assert checks(verdict_of(recorded, goals={"speed": {"minimum": 1}}), None) == {"goals_reached"}
    drop(recorded, "worker0 worker1", "evaluated")
    verdict = verdict_of(recorded, goals=GOALS)
    assert (verdict.exit_code, checks(verdict, None)) == (2, {"goals_reached"})


def test_an_evaluation_of_an_earlier_step_does_not_count(recorded: Path) -> None:
    every = records(recorded, "worker1")
    (evaluated,), _ = steps_and_others(recorded, "worker1", "evaluated")
    early = evaluated | {"global_step": 1, "metrics": {"weight": 0.0, "bias": 0.0}}
    rewrite(recorded, "worker1", [every[0], early, *every[1:]])
    assert "goals_reached" in checks(verdict_of(recorded, goals=GOALS), True)


def test_the_last_step_is_the_highest_that_any_worker_recorded(recorded: Path) -> None:
    edit(recorded, "worker0", "finished", global_step=10)
    verdict = verdict_of(recorded)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.figures["global_steps"] >= 400


@pytest.mark.parametrize(
    ("damage", "missing", "said"),
    [
        (do(lose, "worker1"), "steps_interleave", "worker1 left no records of steps"),
        (do(take_no_step, "worker1"), "steps_interleave", "worker1 left no records of steps"),
        (do(take_no_step, BOTH), "steps_interleave loss_fell", "the program leaves no records of its steps"),
        (let_the_ps_train, "loss_fell", "together: no worker is seen to train; ps0 made "),
        (let_the_ps_train, "loss_fell", "the loss fell: its workers recorded no losses"),
        (do(leave_out, BOTH, "loss loss_mean"), "loss_fell", "the program recorded no losses"),
        (
            do(edit, BOTH, "step", loss=3.0, loss_mean=3.0),
            "loss_fell",
            "the loss fell: the loss went from 3 to 3, so it did not fall beyond its noise",
        ),
        (
            do(edit, BOTH, "started", settings={"replication": "sync"}),
            "steps_interleave",
            "together: it trained synchronously, and workers that train alone would leave the same records.",
        ),
    ],
)
def test_missing_records_are_named_and_no_check_passes_without_them(
    recorded: Path, damage: Damage, missing: str, said: str
) -> None:
    damage(recorded)
    found = verdict_of(recorded)
    assert found.verdict == "completed", found.failing
    assert not checks_named(missing) & checks(found, True, False, None)
    assert said in "\n".join(found.not_shown)

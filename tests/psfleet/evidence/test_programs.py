"""Runs of a user's program: completed, proven by its own records, or neither."""

import json
from functools import partial
from pathlib import Path

import pytest

from psfleet.evidence.answer import size
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.program_folders import end, endings
from tests.psfleet.evidence.run_folders import checks, detail, edit, lose, remove, verdict_of, write
from trainer.contract.plan import ClusterPlan, PlannedTask

WITHOUT_RECORDS = {"tasks_ended_well", "tasks_exchanged"}


def not_shown(run: Path, **settings: object) -> str:
    return "\n".join(verdict_of(run, **settings).not_shown)


def test_a_program_without_records_is_completed_and_the_open_questions_are_named(silent: Path) -> None:
    verdict = verdict_of(silent)
    assert (verdict.verdict, verdict.exit_code) == ("completed", 0), verdict.failing
    assert checks(verdict, True) == WITHOUT_RECORDS
    assert verdict.headline == (
        "COMPLETED: the program ended well on 3 tasks; it is not shown that the workers trained one model"
        " together"
    )
    assert detail(verdict, "tasks_ended_well").startswith(
        "worker0 ended by itself, ps0 was ended by a playbook"
    )
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


def lose_an_ending(run: Path) -> None:
    (run / "tasks.json").write_text(json.dumps(endings(run)[:-1]))


def spoil_an_entry(run: Path) -> None:
    (run / "tasks.json").write_text(json.dumps([*endings(run), 3]))


# How the tasks of a program ended, as tasks.json, the logs and settings.json tell.
CASES = {
    "a worker that failed": Case(
        partial(end, name="worker1", failed=True, exit_code=1, reason="line 1\nValueError: bad data"),
        Expected(
            1,
            "tasks_ended_well",
            "\nworker1 failed with exit code 1: line 1 ... ValueError: bad data\n",
            headline="the program did not end well on every task",
        ),
    ),
    "a lead that was stopped": Case(
        partial(end, name="worker0", exit_code=143),
        Expected(1, "tasks_ended_well", "worker0 was ended by a playbook"),
    ),
    "a task that still runs": Case(
        partial(end, name="ps0", alive=True, exit_code=0),
        Expected(1, "tasks_ended_well", "ps0 was still running"),
    ),
    "a ps that was killed": Case(
        partial(end, name="ps0", failed=True, exit_code=137),
        Expected(1, "tasks_ended_well", "\nps0 failed with exit code 137\n"),
    ),
    "nothing received": Case(
        partial(end, name="worker1", bytes_received=120, bytes_sent=900000),
        Expected(1, "tasks_exchanged", "worker1 received 120 bytes and sent 900000"),
    ),
    "nothing sent": Case(
        partial(end, name="worker1", bytes_received=900000, bytes_sent=65535),
        Expected(1, "tasks_exchanged", "expected at least 65536 each way"),
    ),
    "an end that nobody tells": Case(
        lose_an_ending, Expected(2, "tasks_ended_well", "tasks.json does not say how ps0 ended")
    ),
    "ends that nobody tells": Case(
        partial(remove, name="tasks.json"), Expected(2, "tasks_ended_well", "tasks.json: No such file")
    ),
    "no list of ends": Case(
        partial(write, name="tasks.json", text='{"name": "ps0"}'),
        Expected(2, "tasks_ended_well", "\ntasks.json: not a JSON list\n"),
    ),
    "an exit code that is none": Case(
        partial(end, name="ps0", exit_code="well"),
        Expected(
            2,
            "tasks_ended_well",
            "\ntasks.json, entry 2: exit_code is 'well'; expected a whole number >= 0 or null\n",
        ),
    ),
    "a task that may live or not": Case(
        partial(end, name="ps0", alive=None),
        Expected(2, "tasks_ended_well", "\ntasks.json, entry 2: alive is None; expected true or false\n"),
    ),
    "an entry that is none": Case(
        spoil_an_entry, Expected(2, "tasks_ended_well", "\ntasks.json, entry 3: 3 is not an object\n")
    ),
    "a task that never started": Case(
        partial(remove, name="logs/worker1.out"), Expected(2, "tasks_ended_well", "worker1 left no log")
    ),
    "a program that is none": Case(
        partial(write, name="settings.json", text='{"training": {}, "program": "main.py"}'),
        Expected(2, said="program is 'main.py'; expected an object or null"),
    ),
    "a lead that a playbook ended, of which systemd knew nothing any more": Case(
        partial(end, name="worker0", exit_code=0, ended_by="psfleet"),
        Expected(1, "tasks_ended_well", "worker0 was ended by a playbook"),
    ),
    "a task of whose end nobody knows": Case(
        partial(end, name="worker0", exit_code=None, ended_by="itself"),
        Expected(2, "tasks_ended_well", "it is unknown how worker0 ended"),
    ),
}


@cases(CASES)
def test_each_way_in_which_tasks_ended_gets_its_expected_verdict(silent: Path, case: Case) -> None:
    case.hold(silent)


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


def test_the_minimum_of_exchanged_bytes_can_be_set(silent: Path) -> None:
    end(silent, "worker1", bytes_received=120)
    assert verdict_of(silent, minimum_exchanged_bytes=120).exit_code == 0


def test_interrupted_and_restarted_work_is_named(silent: Path) -> None:
    end(silent, "worker1", exit_code=143, restarts=2)
    said = not_shown(silent)
    assert "worker1 had done its work: it still ran, and a playbook ended it" in said
    assert "worker1 went on where it had been: it was started again 2 times" in said
    assert "ps0 had done its work" not in said
    for name in ("ps0", "worker0"):
        end(silent, name, alive=True)
    assert "worker1 had done its work" in not_shown(silent)


REBOOTED = "its host went down, and was booted since; the last step that it recorded is 400"


def test_a_worker_on_a_host_that_went_down_counts_as_lost_and_not_as_ended_by_a_playbook(
    silent: Path,
) -> None:
    end(silent, "worker1", exit_code=143, failed=True, ended_by="host", reason=REBOOTED)
    verdict = verdict_of(silent)
    assert verdict.exit_code == 1
    assert f"worker1 was lost: {REBOOTED}" in detail(verdict, "tasks_ended_well")
    assert "worker1 had done its work" not in not_shown(silent)


def test_a_sigterm_that_no_playbook_sent_is_reported_as_such(silent: Path) -> None:
    end(silent, "worker1", exit_code=143, ended_by="itself")
    said = "worker1 had done its work: it was ended by SIGTERM, which no playbook sent"
    assert said in not_shown(silent)
    assert said.partition(": it ")[2] in detail(verdict_of(silent), "tasks_ended_well")


def test_chief0_must_end_by_itself_and_workers_need_not(silent: Path) -> None:
    """If there is a chief0, the run ends with it, and train.yml may end the workers."""
    tasks = ClusterPlan.from_json(json.loads((silent / "plan.json").read_text())).tasks
    chief = PlannedTask("chief", 0, "host9", "127.0.0.1", 1)
    (silent / "plan.json").write_text(json.dumps(ClusterPlan("test", (*tasks, chief)).to_json()))
    (silent / "logs/chief0.out").write_text("")
    entries = [entry | {"exit_code": 143} for entry in endings(silent)]
    (silent / "tasks.json").write_text(
        json.dumps([*entries, entries[0] | {"name": "chief0", "exit_code": 0}])
    )
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


SIZES = {None: "-", True: "-", 0: "0 bytes", 999: "999 bytes", 1000: "1 kB", 12_500: "12.5 kB"}
SIZES |= {4 * 10**6: "4 MB", 7 * 10**9: "7 GB", 10**18: "1e+06 TB", 10**400: "1e+06 TB"}


@pytest.mark.parametrize(("count", "said"), SIZES.items())
def test_bytes_are_shown_with_units(count: object, said: str) -> None:
    assert size(count) == said


def test_a_plan_of_a_chief_and_a_ps_without_workers_is_judged(silent: Path) -> None:
    ps, *_ = ClusterPlan.from_json(json.loads((silent / "plan.json").read_text())).tasks
    chief = PlannedTask("chief", 0, "host9", "127.0.0.1", 1)
    (silent / "plan.json").write_text(json.dumps(ClusterPlan("test", (ps, chief)).to_json()))
    (silent / "logs/chief0.out").write_text("")
    first = endings(silent)[0]
    told = [first | {"name": name, "exit_code": 0} for name in ("ps0", "chief0")]
    (silent / "tasks.json").write_text(json.dumps(told))
    assert verdict_of(silent).verdict == "completed"
    (silent / "plan.json").write_text(json.dumps(ClusterPlan("test", (ps,)).to_json()))
    assert "it has no worker and no chief" in verdict_of(silent).checks[0].detail


def test_an_evaluator_is_outside_of_the_exchange_but_must_end_well(silent: Path) -> None:
    tasks = ClusterPlan.from_json(json.loads((silent / "plan.json").read_text())).tasks
    chief = PlannedTask("chief", 0, "host8", "127.0.0.1", 1)
    evaluator = PlannedTask("evaluator", 0, "host9", "127.0.0.2", 1)
    plan = ClusterPlan("test", (*tasks, chief, evaluator))
    (silent / "plan.json").write_text(json.dumps(plan.to_json()))
    entries = endings(silent)
    for name in ("chief0", "evaluator0"):
        (silent / f"logs/{name}.out").write_text("")
        entries.append(entries[0] | {"name": name, "exit_code": 0})
    (silent / "tasks.json").write_text(json.dumps(entries))
    end(silent, "evaluator0", bytes_received=90_000, bytes_sent=500)
    verdict = verdict_of(silent)
    assert verdict.verdict == "completed", verdict.failing
    assert "evaluator0 ended by itself" in detail(verdict, "tasks_ended_well")
    assert "evaluator0" not in detail(verdict, "tasks_exchanged")
    end(silent, "evaluator0", exit_code=143)
    assert "evaluator0 had done its work: it still ran, and a playbook ended it" in not_shown(silent)
    end(silent, "evaluator0", exit_code=70, failed=True, reason="ValueError: no such feature")
    assert verdict_of(silent).exit_code == 1

"""Runs of a program of one's own: completed, proven by its own records, or neither."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.evidence.cases import Expected
from tests.evidence.program_folders import end, endings, keep_no_records, run_program
from tests.evidence.run_folders import checks, detail, drop, edit, events, records, rewrite, verdict_of
from tests.program.launched import RUN_ID
from trainer.evidence.report import as_lines
from trainer.plan import ClusterPlan, Task

GOALS = {"weight": {"minimum": 1.8, "maximum": 2.2}, "bias": {"minimum": 9.8}}
PATTERN = {"tasks": "worker*", "pattern": r"weight: ([0-9.]+)", "minimum": 1.8, "maximum": 2.2}
WITHOUT_RECORDS = {"tasks_ended_well", "tasks_exchanged"}
WITH_RECORDS = WITHOUT_RECORDS | {
    "records_complete",
    "same_plan_and_release",
    "fair_shares",
    "workers_overlap",
    "steps_interleave",
    "loss_finite",
    "loss_fell",
}


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two workers that share a model."""
    return run_program(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two workers that each train a model of their own."""
    return run_program(tmp_path_factory.mktemp("alone"), "--alone")


@pytest.fixture
def recorded(together: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder."""
    return Path(shutil.copytree(together, tmp_path / RUN_ID))


@pytest.fixture
def silent(recorded: Path) -> Path:
    """The same of a program that records nothing."""
    keep_no_records(recorded)
    return recorded


def not_shown(run: Path, **settings: object) -> str:
    return "\n".join(verdict_of(run, **settings).not_shown)


def test_a_program_that_recorded_its_steps_is_proven_by_them(together: Path) -> None:
    verdict = verdict_of(together, goals=GOALS)
    assert (verdict.verdict, verdict.exit_code) == ("proven", 0), verdict.failing
    assert checks(verdict, True) == WITH_RECORDS | {"goals_reached"}
    assert verdict.headline == (
        "PROVEN: by the records of the program 2 workers moved one global step together, and it learned"
    )
    assert "Not shown is that all parameters were shared" in not_shown(together)
    assert verdict.figures["global_steps"] >= 400


def test_workers_that_each_trained_a_model_of_their_own_are_found_out(alone: Path) -> None:
    verdict = verdict_of(alone)
    assert verdict.exit_code == 1
    assert "steps_interleave" in checks(verdict, False)
    assert "worker1 moved the global step alone" in detail(verdict, "steps_interleave")
    assert verdict.headline == "NOT PROVEN: nothing shows that the workers trained one model together"


def test_without_records_a_program_completes_and_the_rest_is_named(silent: Path) -> None:
    verdict = verdict_of(silent)
    assert (verdict.verdict, verdict.exit_code) == ("completed", 0), verdict.failing
    assert checks(verdict, True) == WITHOUT_RECORDS
    assert verdict.headline == (
        "COMPLETED: the program ended well on 3 tasks; not shown is that the workers trained one model"
        " together"
    )
    assert detail(verdict, "tasks_ended_well").startswith(
        "worker0 ended by itself, ps0 was ended by train.yml"
    )
    said = not_shown(silent)
    for sentence in (
        "the workers trained one model together: the program leaves no records of its steps",
        "what the tasks exchanged were parameters and gradients: bytes are counted, not read",
        "the loss fell: the program recorded no losses",
        "the model is good enough for anything: training_evidence_goals asks for nothing",
    ):
        assert f"Not shown is that {sentence}" in said
    shown = [(line.strip(), kind) for line, kind in as_lines(verdict, silent)]
    assert shown[0] == (f"{verdict.headline} (run {RUN_ID})", "headline")
    assert all((sentence, "open") in shown for sentence in verdict.not_shown)
    assert json.loads(json.dumps(verdict.as_json()))["not_shown"] == list(verdict.not_shown)


def fail_a_worker(run: Path) -> None:
    end(run, "worker1", failed=True, exit_code=1, reason="line 1\nValueError: bad data")


def stop_the_lead(run: Path) -> None:
    end(run, "worker0", exit_code=143)


def leave_a_task_running(run: Path) -> None:
    end(run, "ps0", alive=True, exit_code=0)


def kill_the_ps(run: Path) -> None:
    end(run, "ps0", failed=True, exit_code=137)


def exchange_nothing(run: Path) -> None:
    end(run, "worker1", bytes_received=120, bytes_sent=900_000)


def send_nothing(run: Path) -> None:
    end(run, "worker1", bytes_received=900_000, bytes_sent=4095)


def lose_an_ending(run: Path) -> None:
    (run / "tasks.json").write_text(json.dumps(endings(run)[:-1]))


def lose_the_endings(run: Path) -> None:
    (run / "tasks.json").unlink()


def spoil_the_endings(run: Path) -> None:
    (run / "tasks.json").write_text('{"name": "ps0"}')


def spoil_an_ending(run: Path) -> None:
    end(run, "ps0", exit_code="well")


def never_start_a_task(run: Path) -> None:
    (run / "logs" / "worker1.out").unlink()


def spoil_the_program(run: Path) -> None:
    (run / "settings.json").write_text('{"training": {}, "program": "main.py"}')


ENDINGS = [
    Expected(fail_a_worker, 1, {"tasks_ended_well"}, "worker1 failed with exit code 1: ValueError: bad data"),
    Expected(stop_the_lead, 1, {"tasks_ended_well"}, "worker0 was ended by train.yml"),
    Expected(leave_a_task_running, 1, {"tasks_ended_well"}, "ps0 was still running"),
    Expected(kill_the_ps, 1, {"tasks_ended_well"}, "ps0 failed with exit code 137"),
    Expected(exchange_nothing, 1, {"tasks_exchanged"}, "worker1 received 120 bytes and sent 900000"),
    Expected(send_nothing, 1, {"tasks_exchanged"}, "expected at least 4096 each way"),
    Expected(lose_an_ending, 2, {"tasks_ended_well"}, "tasks.json does not tell how ps0 ended"),
    Expected(lose_the_endings, 2, {"tasks_ended_well"}, "tasks.json: No such file"),
    Expected(spoil_the_endings, 2, {"tasks_ended_well"}, "tasks.json: not a JSON list"),
    Expected(spoil_an_ending, 2, {"tasks_ended_well"}, "it lacks alive, failed or exit_code"),
    Expected(never_start_a_task, 2, {"tasks_ended_well"}, "worker1 left no log"),
    Expected(spoil_the_program, 2, None, "program is 'main.py'; expected an object or null"),
]


@pytest.mark.parametrize("expected", ENDINGS, ids=str)
def test_how_tasks_ended_is_judged(silent: Path, expected: Expected) -> None:
    expected.hold(silent)


def test_bytes_that_nobody_counted_are_named_and_not_asked_for(silent: Path) -> None:
    end(silent, "worker1", bytes_received=None, bytes_sent=None)
    assert "Not shown is that worker1 exchanged anything" in not_shown(silent)
    assert "tasks_exchanged" in checks(verdict_of(silent), True)
    for name in ("ps0", "worker0"):
        end(silent, name, bytes_received=None, bytes_sent=None)
    verdict = verdict_of(silent)
    assert verdict.verdict == "completed"
    assert checks(verdict, True, False, None) == {"tasks_ended_well"}
    assert "exchanged anything with the others: systemd did not count the bytes" in not_shown(silent)


def test_the_least_that_a_task_exchanges_can_be_set(silent: Path) -> None:
    exchange_nothing(silent)
    assert verdict_of(silent, minimum_exchanged_bytes=120).exit_code == 0


def test_work_that_was_cut_off_or_begun_anew_is_named(silent: Path) -> None:
    end(silent, "worker1", exit_code=143, restarts=2)
    said = not_shown(silent)
    assert "worker1 had done its work: it still ran when the run was over, and train.yml ended it" in said
    assert "worker1 went on where it had been: it was started again 2 times" in said
    assert "ps0 had done its work" not in said


def test_a_pattern_in_every_log_is_asked_for(silent: Path) -> None:
    verdict = verdict_of(silent, log_patterns=[PATTERN])
    assert verdict.verdict == "completed"
    assert "log_patterns" in checks(verdict, True)
    assert "weight: " in detail(verdict, "log_patterns")


def last_value_counts(run: Path) -> None:
    with (run / "logs" / "worker1.out").open("a") as log:
        log.write("weight: 9.0\n")


def no_number(run: Path) -> None:
    with (run / "logs" / "worker1.out").open("a") as log:
        log.write("weight: .\n")


def never_printed(run: Path) -> None:
    log = run / "logs" / "worker1.out"
    log.write_text(log.read_text().replace("weight", "height"))


def nothing_at_all(_run: Path) -> None:
    return


def log_lost(run: Path) -> None:
    (run / "logs" / "worker1.out").unlink()


@pytest.mark.parametrize(
    ("damage", "changes", "exit_code", "said"),
    [
        (last_value_counts, {}, 1, "worker1 printed 'weight: 9.0': 9, expected at least 1.8 and at most 2.2"),
        (no_number, {}, 1, "'.' is no finite number"),
        (never_printed, {}, 1, "worker1 never printed"),
        (never_printed, {"tasks": "worker0"}, 0, ""),
        (log_lost, {}, 2, "logs/worker1.out: No such file"),
        (nothing_at_all, {"minimum": 3, "maximum": None}, 1, "expected at least 3"),
        (nothing_at_all, {"minimum": None, "maximum": 1}, 1, "expected at most 1"),
        (nothing_at_all, {"minimum": None, "maximum": None}, 0, ""),
        (
            nothing_at_all,
            {"tasks": "wroker*"},
            2,
            "training_evidence_log_patterns[0].tasks is 'wroker*', and the run has no such task; it has ps0",
        ),
    ],
)
def test_what_logs_say_is_judged(
    silent: Path, damage: Callable[[Path], None], changes: dict[str, object], exit_code: int, said: str
) -> None:
    damage(silent)
    verdict = verdict_of(silent, log_patterns=[PATTERN | changes])
    assert verdict.exit_code == exit_code, verdict.failing
    assert said in detail(verdict, "log_patterns")


def test_patterns_are_asked_of_our_own_models_too(run: Path) -> None:
    (run / "logs").mkdir()
    (run / "logs/worker0.out").write_text("Training finished\n")
    asked = [{"tasks": "worker0", "pattern": "finished"}]
    assert verdict_of(run, log_patterns=asked).exit_code == 0
    assert verdict_of(run, log_patterns=[asked[0] | {"pattern": "never"}]).exit_code == 1


def test_goals_are_asked_of_the_last_evaluation(recorded: Path) -> None:
    assert checks(verdict_of(recorded, goals={"weight": {"maximum": 1}}), False) == {"goals_reached"}
    assert checks(verdict_of(recorded, goals={"speed": {"minimum": 1}}), None) == {"goals_reached"}
    drop(recorded, "worker0", "evaluated")
    drop(recorded, "worker1", "evaluated")
    verdict = verdict_of(recorded, goals=GOALS)
    assert (verdict.exit_code, checks(verdict, None)) == (2, {"goals_reached"})


def lose_the_steps_of(*workers: str) -> Callable[[Path], None]:
    def lose(run: Path) -> None:
        for worker in workers:
            drop(run, worker, "step")
            edit(run, worker, "finished", local_step=0)

    return lose


def record_no_losses(run: Path) -> None:
    for worker in ("worker0", "worker1"):
        edit(run, worker, "step", loss=None, loss_mean=None)


def tell_that_it_was_synchronous(run: Path) -> None:
    for worker in ("worker0", "worker1"):
        edit(run, worker, "started", settings={"replication": "sync"})


def let_the_other_record_nothing(run: Path) -> None:
    events(run, "worker1").unlink()


@pytest.mark.parametrize(
    ("damage", "verdict", "missing", "said"),
    [
        (let_the_other_record_nothing, "completed", {"steps_interleave"}, "worker1 left no records of steps"),
        (lose_the_steps_of("worker1"), "completed", {"steps_interleave"}, "worker1 left no records of steps"),
        (
            lose_the_steps_of("worker0", "worker1"),
            "completed",
            {"steps_interleave", "loss_fell"},
            "the program leaves no records of its steps",
        ),
        (record_no_losses, "completed", {"loss_fell"}, "the program recorded no losses"),
        (tell_that_it_was_synchronous, "completed", {"steps_interleave"}, "it trained synchronously"),
    ],
)
def test_what_records_do_not_tell_is_named_and_never_passed(
    recorded: Path, damage: Callable[[Path], None], verdict: str, missing: set[str], said: str
) -> None:
    damage(recorded)
    found = verdict_of(recorded)
    assert found.verdict == verdict, found.failing
    assert not missing & checks(found, True, False, None)
    assert said in "\n".join(found.not_shown)


def fail_in_the_records(run: Path) -> None:
    every = records(run, "worker1")
    failed = {"event": "failed", "class": "program", "reason": "no more data"}
    rewrite(run, "worker1", [*every[:-1], every[-1] | failed])


def run_another_program(run: Path) -> None:
    edit(run, "worker1", "", program="decaf")


def run_another_plan(run: Path) -> None:
    edit(run, "worker1", "", plan_hash="0123456789ab")


def never_fall(run: Path) -> None:
    for worker in ("worker0", "worker1"):
        edit(run, worker, "step", loss=3.0, loss_mean=3.0)


def diverge(run: Path) -> None:
    every = records(run, "worker1")
    steps = [number for number, record in enumerate(every) if record["event"] == "step"]
    rewrite(run, "worker1", [*every[: steps[9]], every[steps[9]] | {"loss": None}, *every[steps[9] + 1 :]])


RECORDS = [
    Expected(fail_in_the_records, 1, {"tasks_ended_well"}, "worker1 recorded that it failed: no more data"),
    Expected(run_another_program, 1, {"same_plan_and_release"}, "worker1 ran program decaf"),
    Expected(run_another_plan, 1, {"same_plan_and_release"}, "worker1 ran plan 0123456789ab"),
    Expected(never_fall, 1, {"loss_fell"}, "the loss went from 3 to 3"),
    Expected(diverge, 1, {"loss_finite"}, "worker1: the loss was no finite number"),
]


@pytest.mark.parametrize("expected", RECORDS, ids=str)
def test_what_records_contradict_is_found(recorded: Path, expected: Expected) -> None:
    expected.hold(recorded)


def test_a_restarted_program_counts_its_steps_anew_also_without_saying_that_it_started(
    recorded: Path,
) -> None:
    every = records(recorded, "worker1")
    steps: Sequence[dict[str, object]] = [record for record in every if record["event"] == "step"]
    half = len(steps) // 2
    again = [record | {"pid": 99999} for record in steps[half:]]
    done = 0
    for record in again:
        done += int(str(record["steps"]))
        record["local_step"] = done
    rewrite(recorded, "worker1", [*every[:1], *steps[:half], *again])
    assert "records_complete" in checks(verdict_of(recorded), True)


def test_a_chief_is_the_lead_of_the_tasks(silent: Path) -> None:
    """Where there is a chief, its end is the run's, and a worker may be ended by train.yml."""
    tasks = ClusterPlan.from_json(json.loads((silent / "plan.json").read_text())).tasks
    chief = Task("chief", 0, "host9", "127.0.0.1", 1)
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

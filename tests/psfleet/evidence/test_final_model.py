"""The final model: one fingerprint for all, and what was found by a process that took no part."""

from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Expected
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    events,
    find_in_the_model,
    records,
    rewrite,
    verdict_of,
)

OTHER = "0123456789abcdef"


def found(run: Path, **metrics: float) -> None:
    """Let the process that took no part have found other metrics."""
    (evaluated,) = (record for record in records(run, "evaluator0") if record["event"] == "evaluated")
    edit(run, "evaluator0", "evaluated", metrics=evaluated["metrics"] | metrics)


def read_nothing(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(run, "worker1", [{k: v for k, v in record.items() if k != "fingerprint"} for record in every])


def be_the_chief(run: Path) -> None:
    edit(run, "evaluator0", "started", nonce=records(run, "worker0")[0]["nonce"])


def find_another_weight(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 1.95, "bias": 10.0, "loss": 0.11})
    found(run, weight=1.96)


def find_less(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11})
    edit(run, "evaluator0", "evaluated", metrics={"weight": 2.0, "bias": 10.0})


def fail_to_evaluate(run: Path) -> None:
    every = records(run, "evaluator0")
    failed = every[-1] | {"event": "failed", "class": "input", "reason": "no checkpoint is there"}
    rewrite(run, "evaluator0", [every[0], failed])


def evaluate_nothing(run: Path) -> None:
    events(run, "evaluator0").unlink()


def save_too_early(run: Path) -> None:
    edit(run, "worker0", "checkpointed", global_step=100)
    evaluate_an_older_checkpoint(run)


read_other_parameters = partial(edit, task="worker1", event="finished", fingerprint=OTHER)
keep_other_parameters = partial(edit, task="evaluator0", event="evaluated", fingerprint=OTHER)
read_at_another_step = partial(edit, task="worker1", event="finished", fingerprint=OTHER, fingerprint_step=7)
evaluate_an_older_checkpoint = partial(edit, task="evaluator0", event="evaluated", global_step=100)
find_no_number = partial(
    edit, task="evaluator0", event="evaluated", metrics={"weight": None, "bias": 10.0, "loss": 0.11}
)
evaluate_and_not_tell_the_end = partial(drop, task="evaluator0", event="finished")
save_nothing = partial(drop, task="worker0", event="checkpointed")
take_the_evaluation_of_another_run = partial(edit, task="evaluator0", event="", run_id="another")
take_the_plan_of_another_run = partial(edit, task="evaluator0", event="", plan_hash=OTHER[:12])
lose_what_the_chief_found = partial(drop, task="worker0", event="evaluated")
CASES = [
    Expected(
        read_other_parameters,
        1,
        {"fingerprints_agree"},
        "the parameters differ at global step 40",
        "nothing shows that 2 workers trained one model together through 1 ps",
    ),
    Expected(keep_other_parameters, 1, {"fingerprints_agree"}, f"evaluator0 read {OTHER}"),
    Expected(read_at_another_step, 2, {"fingerprints_agree"}, "worker1 at global step 7"),
    Expected(read_nothing, 2, {"fingerprints_agree"}, "worker1 does not tell which parameters"),
    Expected(evaluate_an_older_checkpoint, 1, {"evaluated_apart"}, "the chief saved that of 40"),
    Expected(
        be_the_chief,
        1,
        {"evaluated_apart"},
        "has the nonce of worker0: it took part",
        "who took no part does not find the model that the chief evaluated",
    ),
    Expected(find_another_weight, 1, {"evaluated_apart"}, "is 1.96 apart, the chief found 1.95"),
    Expected(find_no_number, 1, {"evaluated_apart", "loss_finite", "model_converged"}, "is nan apart"),
    Expected(find_less, 2, {"evaluated_apart"}, "loss was not evaluated apart"),
    Expected(fail_to_evaluate, 2, {"evaluated_apart", "fingerprints_agree"}, "no checkpoint is there"),
    Expected(evaluate_and_not_tell_the_end, 2, {"evaluated_apart"}, "evaluator0 does not tell its end"),
    Expected(evaluate_nothing, 2, {"evaluated_apart", "fingerprints_agree"}, "no process that took no part"),
    Expected(save_nothing, 2, {"evaluated_apart"}, "does not tell of a checkpoint"),
    Expected(
        save_too_early,
        2,
        {"evaluated_apart", "fingerprints_agree", "model_converged"},
        "the checkpoint is of global step 100, the run ended at 40",
    ),
    Expected(
        take_the_evaluation_of_another_run, 2, {"evaluated_apart", "fingerprints_agree"}, "no process that"
    ),
    Expected(take_the_plan_of_another_run, 1, {"same_plan_and_release"}, "evaluator0 ran plan 0123456789ab"),
    Expected(lose_what_the_chief_found, 2, {"evaluated_apart"}, "nothing to compare with"),
]


@pytest.mark.parametrize("expected", CASES, ids=str)
def test_what_speaks_against_the_final_model_or_lacks_is_said(run: Path, expected: Expected) -> None:
    expected.hold(run)


def test_another_machine_may_find_the_same_a_little_differently(run: Path) -> None:
    weight = records(run, "evaluator0")[-2]["metrics"]["weight"]
    found(run, weight=weight * 1.0009)
    assert verdict_of(run).exit_code == 0
    edit(run, "evaluator0", "evaluated", examples=1_000_000)
    found(run, weight=weight * 1.002)
    assert checks(verdict_of(run), False) == {"evaluated_apart"}


def test_one_example_more_or_less_of_a_small_test_is_no_other_model(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11, "accuracy": 0.95})
    edit(run, "evaluator0", "evaluated", examples=100)
    found(run, accuracy=0.96)
    assert verdict_of(run).exit_code == 0
    found(run, accuracy=0.97)
    assert checks(verdict_of(run), False) == {"evaluated_apart"}


def test_goals_are_asked_of_what_was_found_apart(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11})
    edit(run, "evaluator0", "evaluated", metrics={"weight": 1.2, "bias": 10.0, "loss": 0.11})
    assert checks(verdict_of(run), False) == {"evaluated_apart", "model_converged"}
    assert verdict_of(run).figures["metrics"]["weight"] == 1.2


def test_the_last_evaluation_counts(run: Path) -> None:
    every = records(run, "evaluator0")
    bad = [record | {"fingerprint": OTHER} if "fingerprint" in record else record for record in every]
    again = [record | {"pid": record["pid"] + 100_000, "monotonic": 1e9} for record in every]
    rewrite(run, "evaluator0", [*bad, *again])
    assert verdict_of(run).exit_code == 0


def test_an_id_that_a_process_of_a_worker_had_before_is_not_held_against_who_evaluated(run: Path) -> None:
    edit(run, "evaluator0", "", pid=records(run, "worker1")[0]["pid"])
    assert verdict_of(run).exit_code == 0


@pytest.mark.parametrize("written", [1, 2, 3], ids=["started", "restored", "evaluated"])
def test_who_watched_too_may_have_just_begun_to_evaluate_anew(run: Path, written: int) -> None:
    every = records(run, "evaluator0")
    anew = [record | {"pid": 99999} for record in every[:written]]
    rewrite(run, "evaluator0", [*every, anew[0] | {"nonce": 7}, *anew[1:]])
    assert verdict_of(run).exit_code == 0


def test_an_evaluation_before_the_run_went_on_is_none_of_its_final_model(run: Path) -> None:
    every = records(run, "evaluator0")
    edit(run, "evaluator0", "evaluated", global_step=100)
    earlier = records(run, "evaluator0")
    failed = every[-1] | {"event": "failed", "class": "input", "reason": "it cannot be read", "pid": 99999}
    rewrite(run, "evaluator0", [*earlier, every[0] | {"pid": 99999, "nonce": 7}, failed])
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert "it cannot be read" in detail(verdict, "evaluated_apart")

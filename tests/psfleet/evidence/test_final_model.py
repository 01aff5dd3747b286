"""The final model: one fingerprint for all, and the findings of a process that took no part."""

from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, cases
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    fail,
    find_in_the_model,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
)

OTHER = "0123456789abcdef"


def found(run: Path, **metrics: float) -> None:
    """Let the evaluator have found other metrics."""
    (evaluated,), _ = steps_and_others(run, "evaluator0", "evaluated")
    edit(run, "evaluator0", "evaluated", metrics=evaluated["metrics"] | metrics)


def find_in_the_sample(run: Path, task: str, event: str = "finished", **outputs: object) -> None:
    """Let a client, or the evaluator, have found other outputs for the first test examples."""
    (record,), _ = steps_and_others(run, task, event)
    edit(run, task, event, sample_outputs=record["sample_outputs"] | outputs)


def be_the_chief(run: Path) -> None:
    edit(run, "evaluator0", "started", nonce=records(run, "worker0")[0]["nonce"])


def fail_to_evaluate(run: Path) -> None:
    drop(run, "evaluator0", "restored")
    drop(run, "evaluator0", "evaluated")
    fail(run, "evaluator0", "no checkpoint is there")


def restore(run: Path, fingerprint: str) -> None:
    """Let the chief have restored its first checkpoint, of the first values, as soon as it had saved it."""
    every = records(run, "worker0")
    first = next(number for number, of in enumerate(every) if of["event"] == "checkpointed")
    read = {**every[first], "event": "restored", "checkpoint": "x", "ps_parameters": {}}
    read["fingerprint"] = fingerprint or every[first]["fingerprint"]
    rewrite(run, "worker0", [*every[: first + 1], read, *every[first + 1 :]])


@cases("final_model", globals())
def test_each_contradiction_or_gap_about_the_final_model_is_named(run: Path, case: Case) -> None:
    case.hold(run)


def test_metrics_of_the_evaluator_may_differ_within_a_tolerance(run: Path) -> None:
    weight = records(run, "evaluator0")[-2]["metrics"]["weight"]
    found(run, weight=weight * 1.0009)
    assert verdict_of(run).exit_code == 0
    edit(run, "evaluator0", "evaluated", examples=1_000_000)
    found(run, weight=weight * 1.002)
    assert checks(verdict_of(run), False) == {"evaluated_apart"}


def test_the_accuracy_on_a_small_test_set_may_differ_by_one_example(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11, "accuracy": 0.95})
    edit(run, "evaluator0", "evaluated", examples=100)
    found(run, accuracy=0.96)
    assert verdict_of(run).exit_code == 0
    found(run, accuracy=0.97)
    assert checks(verdict_of(run), False) == {"evaluated_apart"}


def test_goals_are_compared_with_the_evaluators_metrics(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11})
    edit(run, "evaluator0", "evaluated", metrics={"weight": 1.2, "bias": 10.0, "loss": 0.11})
    assert checks(verdict_of(run), False) == {"evaluated_apart", "model_converged"}
    assert verdict_of(run).figures["metrics"]["weight"] == 1.2


def test_only_the_last_evaluation_counts(run: Path) -> None:
    every = records(run, "evaluator0")
    bad = [record | {"fingerprint": OTHER} if "fingerprint" in record else record for record in every]
    again = [record | {"pid": record["pid"] + 100_000, "monotonic": 1e9} for record in every]
    rewrite(run, "evaluator0", [*bad, *again])
    assert verdict_of(run).exit_code == 0


def test_an_evaluator_may_have_the_process_id_of_an_ended_worker(run: Path) -> None:
    edit(run, "evaluator0", "", pid=records(run, "worker1")[0]["pid"])
    assert verdict_of(run).exit_code == 0


@pytest.mark.parametrize("written", [1, 2, 3], ids=["started", "restored", "evaluated"])
def test_an_unfinished_second_evaluation_is_ignored(run: Path, written: int) -> None:
    every = records(run, "evaluator0")
    anew = [record | {"pid": 99999} for record in every[:written]]
    rewrite(run, "evaluator0", [*every, anew[0] | {"nonce": 7}, *anew[1:]])
    assert verdict_of(run).exit_code == 0


def test_an_evaluation_from_before_a_resumed_run_does_not_count(run: Path) -> None:
    every = records(run, "evaluator0")
    edit(run, "evaluator0", "evaluated", global_step=100)
    earlier = records(run, "evaluator0")
    failed = every[-1] | {"event": "failed", "class": "input", "reason": "it cannot be read", "pid": 99999}
    rewrite(run, "evaluator0", [*earlier, every[0] | {"pid": 99999, "nonce": 7}, failed])
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert "it cannot be read" in detail(verdict, "evaluated_apart")

"""The final model: one fingerprint for all, and the findings of a process that took no part."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.folder_damages import double_every_line
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    fail,
    find_in_the_model,
    leave_out,
    lose,
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


def find_in_the_sample(run: Path, task: str, outputs: Mapping[str, object], event: str = "finished") -> None:
    """Let a client, or the evaluator, have found other outputs for the first test examples."""
    (record,), _ = steps_and_others(run, task, event)
    edit(run, task, event, sample_outputs=record["sample_outputs"] | dict(outputs))


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


# One fingerprint for all, and what a process found that took no part.
CASES = {
    "other parameters read by a worker": Case(
        partial(edit, tasks="worker1", event="finished", fingerprint="0123456789abcdef"),
        Expected(
            1,
            "fingerprints_agree",
            "the parameters differ at global step 40",
            headline="nothing shows that 2 workers trained one model together through 1 ps",
        ),
    ),
    "other parameters kept": Case(
        partial(edit, tasks="evaluator0", event="evaluated", fingerprint="0123456789abcdef"),
        Expected(1, "fingerprints_agree", "evaluator0 read 0123456789abcdef"),
    ),
    "parameters of another step": Case(
        partial(edit, tasks="worker1", event="finished", fingerprint="0123456789abcdef", fingerprint_step=7),
        Expected(2, "fingerprints_agree", "worker1 at global step 7"),
    ),
    "no parameters read": Case(
        partial(leave_out, tasks="worker1", fields="fingerprint"),
        Expected(2, "fingerprints_agree", "worker1 did not record which parameters"),
    ),
    "an older checkpoint evaluated": Case(
        partial(edit, tasks="evaluator0", event="evaluated", global_step=100),
        Expected(1, "evaluated_apart", "the chief saved that of 40"),
    ),
    "evaluated by the chief itself": Case(
        be_the_chief,
        Expected(
            1,
            "evaluated_apart",
            "has the nonce of worker0: it took part",
            headline="the evaluator, which took no part, does not find the model that the clients evaluated",
        ),
    ),
    "an evaluator's file that is there twice": Case(
        partial(double_every_line, task="evaluator0"),
        Expected(2, "evaluated_apart", "evaluator0: 4 records twice in its file"),
    ),
    "another weight": Case(
        (
            partial(find_in_the_model, metrics={"weight": 1.95, "bias": 10.0, "loss": 0.11}),
            partial(found, weight=1.96),
        ),
        Expected(1, "evaluated_apart", "is 1.96 apart, the chief found 1.95"),
    ),
    "a weight that is no number": Case(
        partial(
            edit, tasks="evaluator0", event="evaluated", metrics={"weight": None, "bias": 10.0, "loss": 0.11}
        ),
        Expected(1, "evaluated_apart loss_finite model_converged", "is nan apart"),
    ),
    "a metric less": Case(
        (
            partial(find_in_the_model, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11}),
            partial(edit, tasks="evaluator0", event="evaluated", metrics={"weight": 2.0, "bias": 10.0}),
        ),
        Expected(2, "evaluated_apart", "loss was not evaluated outside the training"),
    ),
    "other outputs of a worker": Case(
        partial(find_in_the_sample, task="worker1", outputs={"y[3]": 99.0}),
        Expected(
            1,
            "evaluated_apart",
            "for y[3] of the first test examples worker1 found 99",
            headline="the evaluator, which took no part, does not find the model that the clients evaluated",
        ),
    ),
    "an output of a worker that is no number": Case(
        partial(find_in_the_sample, task="worker1", outputs={"y[0]": None}),
        Expected(1, "evaluated_apart", "worker1 found nan"),
    ),
    "outputs of a worker that are as large as can be": Case(
        partial(find_in_the_sample, task="worker1", outputs={"y[0]": 1e308, "y[1]": -9223372036854775807}),
        Expected(1, "evaluated_apart", "2 of 10 numbers differ"),
    ),
    "outputs of the evaluator that are as large as can be": Case(
        partial(
            find_in_the_sample, task="evaluator0", event="evaluated", outputs={"y[0]": 1.7e308, "y[1]": None}
        ),
        Expected(1, "evaluated_apart", "worker0 found"),
    ),
    "no outputs of a worker": Case(
        partial(leave_out, tasks="worker1", fields="sample_outputs"),
        Expected(2, "evaluated_apart", "worker1 and evaluator0 did not record the same outputs"),
    ),
    "fewer outputs of a worker": Case(
        partial(edit, tasks="worker1", event="finished", sample_outputs={"y[0]": 10.0}),
        Expected(2, "evaluated_apart", "worker1 and evaluator0 did not record the same outputs"),
    ),
    "no outputs of the evaluator": Case(
        partial(leave_out, tasks="evaluator0", fields="sample_outputs"),
        Expected(2, "evaluated_apart", "worker0 and evaluator0 did not record the same outputs"),
    ),
    "an evaluation that failed": Case(
        fail_to_evaluate, Expected(2, "evaluated_apart fingerprints_agree", "no checkpoint is there")
    ),
    "an evaluation without an end": Case(
        partial(drop, tasks="evaluator0", event="finished"),
        Expected(2, "evaluated_apart", "evaluator0 recorded no end"),
    ),
    "no evaluation": Case(
        partial(lose, task="evaluator0"),
        Expected(2, "evaluated_apart fingerprints_agree", "no process outside the training"),
    ),
    "no checkpoint": Case(
        partial(drop, tasks="worker0", event="checkpointed"),
        Expected(2, "evaluated_apart", "the chief recorded no checkpoint"),
    ),
    "a checkpoint that was saved too early": Case(
        (
            partial(edit, tasks="worker0", event="checkpointed", global_step=100),
            partial(edit, tasks="evaluator0", event="evaluated", global_step=100),
        ),
        Expected(
            2,
            "evaluated_apart fingerprints_agree model_converged",
            "the checkpoint is of global step 100, the run ended at 40",
        ),
    ),
    "the evaluation of another run": Case(
        partial(edit, tasks="evaluator0", event="", run_id="another"),
        Expected(2, "evaluated_apart fingerprints_agree", "no process outside"),
    ),
    "the plan of another run": Case(
        partial(edit, tasks="evaluator0", event="", plan_hash="0123456789ab"),
        Expected(1, "same_plan_and_release", "evaluator0 ran plan 0123456789ab"),
    ),
    "nothing found by the chief": Case(
        partial(drop, tasks="worker0", event="evaluated"),
        Expected(2, "evaluated_apart", "nothing to compare with"),
    ),
    "a checkpoint that was changed after it was saved": Case(
        partial(edit, tasks="worker0", event="checkpointed", fingerprint="0123456789abcdef"),
        Expected(1, "fingerprints_agree", "where 0123456789abcdef had been saved"),
    ),
    "a checkpoint that was changed before it was restored": Case(
        partial(restore, fingerprint="0123456789abcdef"),
        Expected(1, "fingerprints_agree", "worker0 restored 0123456789abcdef at global step 0, where"),
    ),
    "a checkpoint that was restored as it had been saved": Case(
        partial(restore, fingerprint=""), Expected(0)
    ),
}


@cases(CASES)
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

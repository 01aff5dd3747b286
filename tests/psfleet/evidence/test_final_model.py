"""The final model: one fingerprint for all, and the findings of a process that took no part."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, cases, do
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


def found(run: Path, /, **metrics: float) -> None:
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


FINGERPRINTS_AGREE = {
    "other parameters read by a worker": Case(
        do(edit, "worker1", "finished", fingerprint=OTHER),
        1,
        "the parameters differ at global step 40",
        headline="nothing shows that 2 workers trained one model together through 1 ps",
    ),
    "other parameters kept": Case(
        do(edit, "evaluator0", "evaluated", fingerprint=OTHER), 1, "evaluator0 read 0123456789abcdef"
    ),
    "parameters of another step": Case(
        do(edit, "worker1", "finished", fingerprint=OTHER, fingerprint_step=7), 2, "worker1 at global step 7"
    ),
    "no parameters read": Case(
        do(leave_out, "worker1", "fingerprint"), 2, "worker1 did not record which parameters"
    ),
    "no evaluation": Case(
        do(lose, "evaluator0"),
        2,
        "no process outside the training",
        failing="fingerprints_agree evaluated_apart",
    ),
    "the evaluation of another run": Case(
        do(edit, "evaluator0", "", run_id="another"),
        2,
        "no process outside",
        failing="fingerprints_agree evaluated_apart",
    ),
    "a checkpoint that was changed after it was saved": Case(
        do(edit, "worker0", "checkpointed", fingerprint=OTHER), 1, "where 0123456789abcdef had been saved"
    ),
    "a checkpoint that was changed before it was restored": Case(
        do(restore, OTHER), 1, "worker0 restored 0123456789abcdef at global step 0, where"
    ),
    "a checkpoint that was restored as it had been saved": Case(do(restore, ""), 0),
}
EVALUATED_APART = {
    "an older checkpoint evaluated": Case(
        do(edit, "evaluator0", "evaluated", global_step=100), 1, "the chief saved that of 40"
    ),
    "evaluated by the chief itself": Case(
        be_the_chief,
        1,
        "has the nonce of worker0: it took part",
        headline="the evaluator, which took no part, does not find the model that the clients evaluated",
    ),
    "an evaluator's file that is there twice": Case(
        do(double_every_line, "evaluator0"), 2, "evaluator0: 4 records twice in its file"
    ),
    "another weight": Case(
        (do(find_in_the_model, metrics={"weight": 1.95, "bias": 10.0, "loss": 0.11}), do(found, weight=1.96)),
        1,
        "is 1.96 apart, the chief found 1.95",
    ),
    "a weight that is no number": Case(
        do(edit, "evaluator0", "evaluated", metrics={"weight": None, "bias": 10.0, "loss": 0.11}),
        1,
        "is nan apart",
        failing="loss_finite model_converged evaluated_apart",
    ),
    "a metric less": Case(
        (
            do(find_in_the_model, metrics={"weight": 2.0, "bias": 10.0, "loss": 0.11}),
            do(edit, "evaluator0", "evaluated", metrics={"weight": 2.0, "bias": 10.0}),
        ),
        2,
        "loss was not evaluated outside the training",
    ),
    "other outputs of a worker": Case(
        do(find_in_the_sample, "worker1", outputs={"y[3]": 99.0}),
        1,
        "for y[3] of the first test examples worker1 found 99",
    ),
    "an output of a worker that is no number": Case(
        do(find_in_the_sample, "worker1", outputs={"y[0]": None}), 1, "worker1 found nan"
    ),
    "outputs of a worker that are as large as can be": Case(
        do(find_in_the_sample, "worker1", outputs={"y[0]": 1e308, "y[1]": -9223372036854775807}),
        1,
        "2 of 10 numbers differ",
    ),
    "outputs of the evaluator that are as large as can be": Case(
        do(find_in_the_sample, "evaluator0", event="evaluated", outputs={"y[0]": 1.7e308, "y[1]": None}),
        1,
        "worker0 found",
    ),
    "no outputs of a worker": Case(
        do(leave_out, "worker1", "sample_outputs"),
        2,
        "worker1 and evaluator0 did not record the same outputs",
    ),
    "an evaluation that failed": Case(
        fail_to_evaluate, 2, "no checkpoint is there", failing="fingerprints_agree evaluated_apart"
    ),
    "an evaluation without an end": Case(do(drop, "evaluator0", "finished"), 2, "evaluator0 recorded no end"),
    "no checkpoint": Case(do(drop, "worker0", "checkpointed"), 2, "the chief recorded no checkpoint"),
    "a checkpoint that was saved too early": Case(
        (
            do(edit, "worker0", "checkpointed", global_step=100),
            do(edit, "evaluator0", "evaluated", global_step=100),
        ),
        2,
        "the checkpoint is of global step 100, the run ended at 40",
        failing="model_converged fingerprints_agree evaluated_apart",
    ),
    "nothing found by the chief": Case(do(drop, "worker0", "evaluated"), 2, "nothing to compare with"),
    "a chief that found nothing": Case(
        do(edit, "worker0", "evaluated", metrics={}), 2, "the chief did not record its weight"
    ),
}


@cases(fingerprints_agree=FINGERPRINTS_AGREE, evaluated_apart=EVALUATED_APART)
def test_each_contradiction_or_gap_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


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

"""A run that an evaluation ended before its last step is judged as it ended."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.reading import read_run
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.cases import Case, cases, do
from tests.psfleet.evidence.run_folders import (
    edit,
    events,
    find_in_the_model,
    records,
    rewrite,
    tell_settings,
    verdict_of,
)

CONDITION = "loss < 0.115"
TOO_HIGH = {"weight": 2.0, "bias": 10.0, "loss": 0.131}


@pytest.fixture
def early(copy_of: Callable[[str], Path]) -> Path:
    """A copy of a real run that ended early."""
    return copy_of("ended_early")


def lose_the_series(run: Path) -> None:
    """Let only the evaluation of the final model be there."""
    every = records(run, "evaluator0")
    last = max(place for place, record in enumerate(every) if record["event"] == "started")
    rewrite(run, "evaluator0", every[last:])


def evaluate_other_values(run: Path, loss: float) -> None:
    """Let the evaluations during the run have met the condition, with other values than were saved."""
    every = records(run, "evaluator0")
    last = max(place for place, record in enumerate(every) if record["event"] == "started")
    for record in every[:last]:
        if record["event"] == "evaluated":
            record |= {"fingerprint": "0123456789abcdef", "metrics": record["metrics"] | {"loss": loss}}
    rewrite(run, "evaluator0", every)


ENDED_WELL = {
    "no evaluation that met the condition": Case(
        do(find_in_the_model, metrics=TOO_HIGH), 1, "no evaluation of a checkpoint before met loss < 0.115"
    ),
    "the evaluations during the run lost, and a final model above the bound": Case(
        (lose_the_series, do(find_in_the_model, metrics=TOO_HIGH)),
        2,
        "no evaluation of a checkpoint before met loss < 0.115",
    ),
    "settings without a condition": Case(
        do(tell_settings, stop_when=""),
        1,
        "worker1 ended because an evaluation met stop_when, which the run's settings do not have",
        failing="same_settings ended_well",
    ),
    "settings with another condition": Case(
        do(tell_settings, stop_when="loss<0.001"),
        1,
        "no evaluation of a checkpoint before met loss < 0.001",
        failing="same_settings ended_well",
    ),
    "a condition that is none": Case(
        do(tell_settings, stop_when="loss is low"), 1, failing="same_settings ended_well"
    ),
    "a chief that does not say why it ended so early": Case(
        do(edit, "worker0 worker1", "finished", reason="last step"), 1, "its settings ask for 1000000"
    ),
    "more steps than were asked for": Case(
        do(tell_settings, steps=10), 1, "its settings ask for 10", failing="same_settings ended_well"
    ),
    "other values evaluated than were saved, and a final model above the bound": Case(
        (do(find_in_the_model, metrics=TOO_HIGH), do(evaluate_other_values, loss=0.1)),
        1,
        "no evaluation of a checkpoint before met loss < 0.115",
    ),
}


@cases("ended_early", ended_well=ENDED_WELL)
def test_what_a_run_says_of_its_early_end_is_checked(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_a_run_that_ended_early_is_proven_and_says_where_and_why(early: Path) -> None:
    verdict = verdict_of(early)
    assert verdict.verdict == "proven", verdict.failing
    found = [record for record in records(early, "evaluator0") if record["event"] == "evaluated"]
    met = next(record for record in found if record["metrics"]["loss"] < 0.115)
    value = met["metrics"]["loss"]
    assert verdict.figures["early_end"] == {
        "condition": CONDITION,
        "global_step": met["global_step"],
        "value": value,
    }
    why = f"{CONDITION} was met by the evaluation of global step {met['global_step']}: loss was {value:.6g}"
    assert verdict.headline.endswith(f"and it converged; it ended early: {why}")
    ended_well = next(check for check in verdict.checks if check.check == "ended_well")
    step = read_run(early).global_steps
    assert ended_well.detail == f"all workers finished, global step {step} of 1000000; {why}"
    shown = "\n".join(line for line, _ in as_lines(verdict, early))
    assert f"{CONDITION} was met at global step {met['global_step']}: {value:.6g}" in shown


def test_an_evaluation_after_the_last_step_ends_no_run(early: Path) -> None:
    last = read_run(early).last_step
    assert last is not None
    # All were of a checkpoint that was saved after it.
    (evaluated, *_) = [record for record in records(early, "evaluator0") if record["event"] == "evaluated"]
    of_later = {"global_step": last + 1, "fingerprint": evaluated["fingerprint"]}
    edit(early, "evaluator0", "evaluated", **of_later)
    edit(early, "worker0", "checkpointed", **of_later)
    (ended_well,) = (check for check in verdict_of(early).checks if check.check == "ended_well")
    assert ended_well.ok is False
    assert (
        f"the run ended early at global step {last}, and no evaluation of a checkpoint before"
        in ended_well.detail
    )


@pytest.mark.parametrize("metrics", [{}, {"loss": None}, {"loss": 10**17}])
def test_metrics_that_a_host_made_up_prove_nothing(early: Path, metrics: dict[str, object]) -> None:
    every = records(early, "evaluator0")
    for record in every:
        if record["event"] == "evaluated":
            record["metrics"] = metrics
    rewrite(early, "evaluator0", every)
    verdict = verdict_of(early)
    assert "ended_well" in {check.check for check in verdict.failing}
    assert verdict.figures["early_end"] is None
    json.dumps(verdict.as_json(), allow_nan=False)
    assert events(early, "evaluator0").exists()

"""The learning checks: losses, metrics and goals, on changed records of a healthy run."""

from pathlib import Path

from tests.psfleet.evidence.cases import Case, cases
from tests.psfleet.evidence.damages import lose_a_number_in_the_loss, train_another_model
from tests.psfleet.evidence.run_folders import (
    checks,
    edit,
    find_in_the_model,
    verdict_of,
)


def learn(run: Path, model: str, **metrics: float) -> None:
    train_another_model(run, model)
    find_in_the_model(run, metrics=metrics)


def miss_the_line(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 1.2, "bias": 10.0, "loss": 0.3})


def evaluate_too_early(run: Path) -> None:
    find_in_the_model(run, global_step=100)
    edit(run, "worker0", "checkpointed", global_step=100)


@cases("model_goals", globals())
def test_what_was_learned_is_judged(run: Path, case: Case) -> None:
    case.hold(run)


def test_a_loss_that_is_no_number_is_not_compared_with_others(run: Path) -> None:
    lose_a_number_in_the_loss(run)
    assert checks(verdict_of(run), None) == {"loss_fell", "loss_settled"}
    assert verdict_of(run).figures["loss_first"] is None
    assert verdict_of(run).headline == "NOT PROVEN: training diverged"


def test_goals_that_people_set_are_asked_of_any_model(run: Path) -> None:
    asked = {"loss": {"maximum": 0.05}}
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}
    train_another_model(run, "my_model")
    assert verdict_of(run, goals={"loss": {"maximum": 1}}).exit_code == 0
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}


def test_a_goal_that_people_set_counts_instead_of_the_models_own(run: Path) -> None:
    miss_the_line(run)
    assert verdict_of(run, goals={"weight": {"minimum": 1, "maximum": 1.5}}).exit_code == 0

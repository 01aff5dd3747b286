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
def test_each_change_of_the_learned_model_gets_its_expected_verdict(run: Path, case: Case) -> None:
    case.hold(run)


def test_a_non_finite_loss_is_not_compared_with_other_losses(run: Path) -> None:
    lose_a_number_in_the_loss(run)
    assert checks(verdict_of(run), None) == {"loss_fell", "loss_settled"}
    assert verdict_of(run).figures["loss_first"] is None
    assert verdict_of(run).headline == "NOT PROVEN: training diverged"


def test_configured_goals_apply_to_any_model(run: Path) -> None:
    asked = {"loss": {"maximum": 0.05}}
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}
    train_another_model(run, "my_model")
    assert verdict_of(run, goals={"loss": {"maximum": 1}}).exit_code == 0
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}


def test_a_configured_goal_replaces_the_models_own(run: Path) -> None:
    miss_the_line(run)
    assert verdict_of(run, goals={"weight": {"minimum": 1, "maximum": 1.5}}).exit_code == 0

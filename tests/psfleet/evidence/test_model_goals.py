"""What the model has learned: losses, metrics and goals, by records of a healthy run that are changed."""

from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Expected
from tests.psfleet.evidence.damages import lose_a_number_in_the_loss
from tests.psfleet.evidence.run_folders import (
    checks,
    drop,
    edit,
    find_in_the_model,
    tell_settings,
    verdict_of,
)


def train_no_better(run: Path) -> None:
    for task in ("worker0", "worker1"):
        edit(run, task, "step", loss=5.0, loss_mean=5.0)


def miss_the_line_too_early(run: Path) -> None:
    miss_the_line(run)
    evaluate_too_early(run)


def miss_the_line_unshared(run: Path) -> None:
    miss_the_line(run)
    drop(run, "worker0", "peers_ready")


def learn_digits(run: Path, accuracy: float) -> None:
    train_another_model(run, "mnist_mlp")
    find_in_the_model(run, metrics={"accuracy": accuracy, "cross_entropy": 0.4})


def train_another_model(run: Path, model: str) -> None:
    tell_settings(run, model=model)
    for task in ("worker0", "worker1"):
        edit(run, task, "started", settings={"model": model})


def place_badly(run: Path) -> None:
    train_another_model(run, "placement_demo")
    find_in_the_model(run, metrics={"largest_error": 0.06})


def see_badly(run: Path) -> None:
    train_another_model(run, "cnn")
    find_in_the_model(run, metrics={"accuracy": 0.89})


def learn_what_workers_knew(run: Path, largest_error: float) -> None:
    train_another_model(run, "partition")
    errors = {"error_of_worker0": 2.1, "error_of_worker1": 0.001, "error_of_worker2": 2.5}
    find_in_the_model(run, metrics={"largest_error": largest_error, **errors})


def evaluate_too_early(run: Path) -> None:
    find_in_the_model(run, global_step=100)
    edit(run, "worker0", "checkpointed", global_step=100)


def evaluate_never(run: Path) -> None:
    for task in ("worker0", "evaluator0"):
        drop(run, task, "evaluated")


miss_the_line = partial(find_in_the_model, metrics={"weight": 1.2, "bias": 10.0, "loss": 0.3})
learn_digits_badly = partial(learn_digits, accuracy=0.31)
learn_digits_well = partial(learn_digits, accuracy=0.93)
evaluate_something_else = partial(find_in_the_model, metrics={"loss": 0.1})
train_an_unknown_model = partial(train_another_model, model="my_model")
FINAL = {"fingerprints_agree", "evaluated_apart", "model_converged"}
CASES = [
    Expected(learn_digits_well, 0, set(), ""),
    Expected(train_no_better, 1, {"loss_fell", "loss_settled"}, "the loss went from 5 to 5"),
    Expected(
        miss_the_line,
        1,
        {"model_converged"},
        "weight is 1.2000, expected 2 +- 0.2",
        "2 workers trained one model together through 1 ps, but it did not converge",
    ),
    Expected(miss_the_line_unshared, 1, {"model_converged"}, "weight is 1.2", "the model did not converge"),
    Expected(learn_digits_badly, 1, {"model_converged"}, "accuracy is 0.3100, expected at least 0.9"),
    Expected(
        place_badly, 1, {"model_converged", "loss_settled"}, "largest_error is 0.0600, expected at most 0.05"
    ),
    Expected(
        partial(learn_what_workers_knew, largest_error=2.5),
        1,
        {"model_converged", "loss_settled"},
        "largest_error is 2.5000, expected at most 0.05: what only worker0, worker2 knew was not found",
    ),
    Expected(partial(learn_what_workers_knew, largest_error=0.05), 1, {"loss_settled"}, "largest_error 0.05"),
    Expected(see_badly, 1, {"model_converged"}, "accuracy is 0.8900, expected at least 0.9"),
    Expected(miss_the_line_too_early, 2, FINAL, "weight is 1.2000"),
    Expected(evaluate_something_else, 2, {"model_converged"}, "weight was not evaluated"),
    Expected(evaluate_too_early, 2, FINAL, "the last evaluation is of global step 100"),
    Expected(evaluate_never, 2, FINAL, "nobody evaluated the final model"),
    Expected(train_an_unknown_model, 2, {"model_converged"}, "no goal is known for model 'my_model'"),
]


@pytest.mark.parametrize("expected", CASES, ids=str)
def test_what_was_learned_is_judged(run: Path, expected: Expected) -> None:
    expected.hold(run)


def test_a_loss_that_is_no_number_is_not_compared_with_others(run: Path) -> None:
    lose_a_number_in_the_loss(run)
    assert checks(verdict_of(run), None) == {"loss_fell", "loss_settled"}
    assert verdict_of(run).figures["loss_first"] is None
    assert verdict_of(run).headline == "NOT PROVEN: training diverged"


def test_goals_that_people_set_are_asked_of_any_model(run: Path) -> None:
    asked = {"loss": {"maximum": 0.05}}
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}
    train_an_unknown_model(run)
    assert verdict_of(run, goals={"loss": {"maximum": 1}}).exit_code == 0
    assert checks(verdict_of(run, goals=asked), False) == {"model_converged"}


def test_a_goal_that_people_set_counts_instead_of_the_models_own(run: Path) -> None:
    miss_the_line(run)
    assert verdict_of(run, goals={"weight": {"minimum": 1, "maximum": 1.5}}).exit_code == 0

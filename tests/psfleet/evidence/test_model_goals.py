"""The learning checks: losses, metrics and goals, on changed records of a healthy run."""

from functools import partial
from pathlib import Path

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.folder_damages import lose_a_number_in_the_loss, train_another_model
from tests.psfleet.evidence.run_folders import (
    checks,
    drop,
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


# What the model has learned, by its loss, its metrics and its goals.
CASES = {
    "digits learned well": Case(
        partial(learn, model="mnist_mlp", accuracy=0.93, cross_entropy=0.4), Expected(0, "")
    ),
    "nothing learned": Case(
        partial(edit, tasks="worker0 worker1", event="step", loss=5.0, loss_mean=5.0),
        Expected(1, "loss_fell loss_settled", "the loss went from 5 to 5"),
    ),
    "a line that is missed": Case(
        miss_the_line,
        Expected(
            1,
            "model_converged",
            "weight is 1.2000, expected 2 +- 0.2",
            headline="2 workers trained one model together through 1 ps, but it did not converge",
        ),
    ),
    "a line that is missed by workers who shared nothing": Case(
        (miss_the_line, partial(drop, tasks="worker0", event="peers_ready")),
        Expected(1, "model_converged", "weight is 1.2", headline="the model did not converge"),
    ),
    "digits learned badly": Case(
        partial(learn, model="mnist_mlp", accuracy=0.31, cross_entropy=0.4),
        Expected(1, "model_converged", "accuracy is 0.3100, expected at least 0.9"),
    ),
    "variables placed badly": Case(
        partial(learn, model="placement_demo", largest_error=0.06),
        Expected(1, "model_converged loss_settled", "largest_error is 0.0600, expected at most 0.05"),
    ),
    "what only some workers knew": Case(
        partial(
            learn,
            model="partition",
            largest_error=2.5,
            error_of_worker0=2.1,
            error_of_worker1=0.001,
            error_of_worker2=2.5,
        ),
        Expected(
            1,
            "model_converged loss_settled",
            "largest_error is 2.5000, expected at most 0.05: what only worker0, worker2 knew was not learned",
        ),
    ),
    "what all workers knew": Case(
        partial(
            learn,
            model="partition",
            largest_error=0.05,
            error_of_worker0=2.1,
            error_of_worker1=0.001,
            error_of_worker2=2.5,
        ),
        Expected(1, "loss_settled", "largest_error 0.05"),
    ),
    "clicks predicted as well as so many examples allow": Case(
        partial(
            learn, model="wide_deep", auc=0.781, log_loss=0.47, reachable_auc=0.795, reachable_log_loss=0.456
        ),
        Expected(0, said="auc 0.7810, expected at least 0.765: so many examples let a model reach 0.7950"),
    ),
    "clicks predicted by products as well as so many examples allow": Case(
        partial(learn, model="dlrm", auc=0.781, log_loss=0.47, reachable_auc=0.795, reachable_log_loss=0.456),
        Expected(0, said="auc 0.7810, expected at least 0.765: so many examples let a model reach 0.7950"),
    ),
    "clicks predicted badly": Case(
        partial(
            learn, model="wide_deep", auc=0.76, log_loss=0.48, reachable_auc=0.795, reachable_log_loss=0.456
        ),
        Expected(
            1,
            "model_converged",
            "auc is 0.7600, expected at least 0.765: so many examples let a model reach 0.7950",
        ),
    ),
    "clicks with a training loss far above what can be reached": Case(
        partial(
            learn, model="wide_deep", auc=0.781, log_loss=0.47, reachable_auc=0.795, reachable_log_loss=0.04
        ),
        Expected(1, "loss_settled", "expected at most 0.09 throughout"),
    ),
    "clicks of files": Case(
        partial(learn, model="wide_deep", auc=0.781, log_loss=0.47),
        Expected(
            2,
            "model_converged",
            "no goal is known for model 'wide_deep'; training_evidence_goals can name one",
        ),
    ),
    "images seen badly": Case(
        partial(learn, model="cnn", accuracy=0.89),
        Expected(1, "model_converged", "accuracy is 0.8900, expected at least 0.9"),
    ),
    "a line that is missed too early": Case(
        (miss_the_line, evaluate_too_early),
        Expected(2, "fingerprints_agree evaluated_apart model_converged", "weight is 1.2000"),
    ),
    "something else evaluated": Case(
        partial(find_in_the_model, metrics={"loss": 0.1}),
        Expected(2, "model_converged", "weight was not evaluated"),
    ),
    "an evaluation of too early": Case(
        evaluate_too_early,
        Expected(
            2,
            "fingerprints_agree evaluated_apart model_converged",
            "the last evaluation is of global step 100",
        ),
    ),
    "no evaluation": Case(
        partial(drop, tasks="worker0 evaluator0", event="evaluated"),
        Expected(
            2, "fingerprints_agree evaluated_apart model_converged", "the final model was not evaluated"
        ),
    ),
    "an unknown model": Case(
        partial(train_another_model, model="my_model"),
        Expected(2, "model_converged", "no goal is known for model 'my_model'"),
    ),
    "labels that are all the same": Case(
        partial(learn, model="mnist_mlp", accuracy=1.0, cross_entropy=0.0, largest_class=1.0),
        Expected(
            2,
            "model_converged",
            "the same answer for all test examples is right for 1.0000 of them, the model for "
            "1.0000: it is not shown that the model learned",
        ),
    ),
    "a classifier that always gives the commonest answer": Case(
        partial(learn, model="mnist_mlp", accuracy=0.95, cross_entropy=0.2, largest_class=0.95),
        Expected(2, "model_converged", "it is not shown that the model learned"),
    ),
    "a classifier that is right more often than the commonest answer": Case(
        partial(learn, model="mnist_mlp", accuracy=0.97, cross_entropy=0.2, largest_class=0.11), Expected(0)
    ),
}


@cases(CASES)
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

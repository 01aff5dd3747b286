"""The learning checks: losses, metrics and goals."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.convergence import loss_settled
from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from tests.psfleet.evidence.cases import ANY, Case, cases, do
from tests.psfleet.evidence.folder_damages import (
    change_steps,
    lose_a_number_in_the_loss,
    set_losses,
    train_another_model,
)
from tests.psfleet.evidence.run_folders import (
    Record,
    checks,
    detail,
    drop,
    edit,
    find_in_the_model,
    leave_out,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
)


def learn(run: Path, /, model: str, **metrics: float) -> None:
    train_another_model(run, model)
    find_in_the_model(run, metrics=metrics)


def miss_the_line(run: Path) -> None:
    find_in_the_model(run, metrics={"weight": 1.2, "bias": 10.0, "loss": 0.3})


def evaluate_too_early(run: Path) -> None:
    find_in_the_model(run, global_step=100)
    edit(run, "worker0", "checkpointed", global_step=100)


LOSS_FINITE = {
    # What medians of both signs are is chance.
    "losses beyond all measure": Case(
        do(set_losses, lambda number: (-1) ** number * 1.7e308),
        1,
        "the loss was not finite, or above 1e+30,",
        failing=ANY,
    ),
    "a loss that diverges": Case(
        do(change_steps, "worker1", lambda number, _: {"loss": None} if number == 9 else {}),
        1,
        "worker1: the loss was not finite",
        kind="program",
    ),
    "a loss that diverges at once": Case(
        do(edit, "worker0 worker1", "step", loss=None, loss_mean=None),
        1,
        "worker0: the loss was not finite",
        kind="program",
    ),
}
LOSS_FELL = {
    "a loss at its target from the beginning": Case(
        do(edit, "worker0 worker1", "step", loss=0.1, loss_mean=0.1),
        2,
        "the loss was at its target of 0.2 from the beginning",
    ),
    "nothing learned": Case(
        do(edit, "worker0 worker1", "step", loss=5.0, loss_mean=5.0),
        1,
        "the loss went from 5 to 5",
        failing="loss_fell loss_settled",
    ),
    "the name of our model, whose loss says nothing of a program's own": Case(
        (
            do(edit, "worker0 worker1", "started", settings={"model": "linear"}),
            do(edit, "worker0 worker1", "step", loss=0.15, loss_mean=0.15),
        ),
        0,
        headline="COMPLETED: the program ended well on 3 tasks; it is not shown that the loss fell",
        kind="program",
    ),
    "a negative loss that rises": Case(
        do(set_losses, lambda number: number / 5 - 50), 1, "the loss rose from -4", kind="program"
    ),
    "a negative loss that falls": Case(do(set_losses, lambda number: -1 - number), 0, kind="program"),
    "a loss that has come to rest long before the first tenth is over": Case(
        do(set_losses, lambda number: 10.0 - number if number < 5 else 1e-12), 0, " to 1e-12", kind="program"
    ),
}
LOSS_SETTLED = {
    "a worker that learned nothing": Case(
        do(edit, "worker1", "step", loss=2.35, loss_mean=2.35),
        1,
        "the loss of worker1 alone was 2.35 in",
        failing=ANY,
    ),
    "clicks with a training loss far above what can be reached": Case(
        do(learn, "wide_deep", auc=0.781, log_loss=0.47, reachable_auc=0.795, reachable_log_loss=0.04),
        1,
        "expected at most 0.09 throughout",
    ),
}
MODEL_CONVERGED = {
    "a goal that is missed": Case((), 1, asked={"goals": {"loss": {"maximum": 0.05}}}),
    "a goal of any model that is missed": Case(
        do(train_another_model, "my_model"), 1, asked={"goals": {"loss": {"maximum": 0.05}}}
    ),
    "a goal of any model": Case(
        do(train_another_model, "my_model"), 0, asked={"goals": {"loss": {"maximum": 1}}}
    ),
    "a goal in place of the model's own": Case(
        miss_the_line, 0, asked={"goals": {"weight": {"minimum": 1, "maximum": 1.5}}}
    ),
    "digits learned well": Case(do(learn, "mnist_mlp", accuracy=0.93, cross_entropy=0.4), 0),
    "a line that is missed": Case(
        miss_the_line,
        1,
        "weight is 1.2000, expected 2 +- 0.2",
        headline="2 workers trained one model together through 1 ps, but it did not converge",
    ),
    "a line that is missed by workers who shared nothing": Case(
        (miss_the_line, do(drop, "worker0", "peers_ready")),
        1,
        "weight is 1.2",
        headline="the model did not converge",
    ),
    "digits learned badly": Case(
        do(learn, "mnist_mlp", accuracy=0.31, cross_entropy=0.4), 1, "accuracy is 0.3100, expected at least"
    ),
    "variables placed badly": Case(
        do(learn, "placement_demo", largest_error=0.06),
        1,
        "largest_error is 0.0600, expected at most 0.05",
        failing="loss_settled model_converged",
    ),
    "what only some workers knew": Case(
        do(
            learn,
            "partition",
            largest_error=2.5,
            error_of_worker0=2.1,
            error_of_worker1=0.001,
            error_of_worker2=2.5,
        ),
        1,
        "largest_error is 2.5000, expected at most 0.05: what only worker0, worker2 knew was not learned",
        failing="loss_settled model_converged",
    ),
    "what all workers knew": Case(
        do(
            learn,
            "partition",
            largest_error=0.05,
            error_of_worker0=2.1,
            error_of_worker1=0.001,
            error_of_worker2=2.5,
        ),
        1,
        "largest_error 0.05",
        failing="loss_settled",
    ),
    "clicks predicted as well as so many examples allow": Case(
        do(learn, "wide_deep", auc=0.781, log_loss=0.47, reachable_auc=0.795, reachable_log_loss=0.456),
        0,
        "auc 0.7810, expected at least 0.765: so many examples let a model reach 0.7950",
    ),
    "clicks predicted badly": Case(
        do(learn, "wide_deep", auc=0.76, log_loss=0.48, reachable_auc=0.795, reachable_log_loss=0.456),
        1,
        "auc is 0.7600, expected at least 0.765: so many examples let a model reach 0.7950",
    ),
    "clicks of files": Case(
        do(learn, "wide_deep", auc=0.781, log_loss=0.47),
        2,
        "no goal is known for model 'wide_deep'; training_evidence_goals can name one",
    ),
    "images seen badly": Case(
        do(learn, "cnn", accuracy=0.89), 1, "accuracy is 0.8900, expected at least 0.9"
    ),
    "a line that is missed too early": Case(
        (miss_the_line, evaluate_too_early),
        2,
        "weight is 1.2000",
        failing="model_converged fingerprints_agree evaluated_apart",
    ),
    "something else evaluated": Case(
        do(find_in_the_model, metrics={"loss": 0.1}), 2, "weight was not evaluated"
    ),
    "an evaluation of too early": Case(
        evaluate_too_early,
        2,
        "the last evaluation is of global step 100",
        failing="model_converged fingerprints_agree evaluated_apart",
    ),
    "no evaluation": Case(
        do(drop, "worker0 evaluator0", "evaluated"),
        2,
        "the final model was not evaluated",
        failing="model_converged fingerprints_agree evaluated_apart",
    ),
    "an unknown model": Case(do(train_another_model, "my_model"), 2, "no goal is known for model 'my_model'"),
    "labels that are all the same": Case(
        do(learn, "mnist_mlp", accuracy=1.0, cross_entropy=0.0, largest_class=1.0),
        2,
        "the same answer for all test examples is right for 1.0000 of them, the model for "
        "1.0000: it is not shown that the model learned",
    ),
    "a classifier that is right more often than the commonest answer": Case(
        do(learn, "mnist_mlp", accuracy=0.97, cross_entropy=0.2, largest_class=0.11), 0
    ),
}


@cases(
    loss_finite=LOSS_FINITE, loss_fell=LOSS_FELL, loss_settled=LOSS_SETTLED, model_converged=MODEL_CONVERGED
)
def test_each_change_of_what_was_learned_gets_its_answer(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_a_non_finite_loss_is_not_compared_with_other_losses(run: Path) -> None:
    lose_a_number_in_the_loss(run)
    assert checks(verdict_of(run), None) == {"loss_fell", "loss_settled"}
    assert verdict_of(run).figures["loss_first"] is None
    assert verdict_of(run).headline == "NOT PROVEN: training diverged"


def test_a_program_may_record_losses_of_one_worker_only(recorded: Path) -> None:
    leave_out(recorded, "worker1", "loss loss_mean")
    verdict = verdict_of(recorded)
    assert verdict.verdict == "proven", verdict.failing
    windows, _ = steps_and_others(recorded, "worker0")
    assert detail(verdict, "loss_finite") == f"finite in all {len(windows)} windows of steps"


Shape = Callable[[float], float]  # part of the run that is done -> loss


def shape_losses(run: Path, shape: Shape, noise: float = 0.0) -> None:
    """Give each window the loss that the part of the run has by then, times lognormal noise."""
    chance, last = random.Random(3), records(run, "worker0")[-1]["global_step"]

    def change(_: int, record: Record) -> Record:
        loss = shape(record["global_step_after"] / last) * math.exp(chance.gauss(0, noise))
        return {"loss": loss, "loss_mean": loss}

    change_steps(run, "worker0 worker1", change)


def falling(done: float) -> float:
    return 0.1 + 50 * math.exp(-30 * done)


def plateau(done: float) -> float:
    return falling(done) + 0.2


def rising(done: float) -> float:
    return falling(done) * (1 if done < 2 / 3 else math.exp(done - 2 / 3))


def late(done: float) -> float:
    return 50.0 if done < 0.5 else 0.1


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.6])
def test_a_loss_that_fell_to_its_target_has_settled_whatever_its_noise(run: Path, noise: float) -> None:
    shape_losses(run, falling, noise)
    verdict = verdict_of(run)
    assert "loss_settled" in checks(verdict, True), detail(verdict, "loss_settled")


def test_a_few_outlying_windows_do_not_matter(run: Path) -> None:
    shape_losses(run, lambda done: 1000.0 if done * 100 % 10 > 9 else falling(done))
    assert "loss_settled" in checks(verdict_of(run), True)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_a_plateau_above_the_target_is_not_proven(run: Path, noise: float) -> None:
    shape_losses(run, plateau, noise)
    verdict = verdict_of(run)
    assert (checks(verdict, False), verdict.exit_code) == ({"loss_settled"}, 1)
    assert "expected at most 0.2 throughout" in detail(verdict, "loss_settled")
    assert verdict_of(run, target_loss=0.6).exit_code == 0


def test_the_loss_must_stay_below_its_target_for_the_patience(run: Path) -> None:
    shape_losses(run, late)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0.8), False)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0.1), True)
    shape_losses(run, lambda done: 0.1 if done == 1 else 50.0)
    assert "loss_settled" in checks(verdict_of(run, loss_patience=0), True)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_rising_loss_is_found_also_below_its_target(run: Path, noise: float) -> None:
    shape_losses(run, rising, noise)
    verdict = verdict_of(run)
    assert checks(verdict, False) == {"loss_settled"}
    assert "the loss rises: 1." in detail(verdict, "loss_settled")


def test_a_loss_without_a_target_must_only_not_rise(run: Path) -> None:
    train_another_model(run, "my_model")
    shape_losses(run, plateau, 0.1)
    assert "loss_settled" in checks(verdict_of(run), True)


def test_missing_records_leave_the_question_open(run: Path) -> None:
    shape_losses(run, plateau)
    rewrite(run, "worker1", records(run, "worker1")[:-1])
    assert "loss_settled" in checks(verdict_of(run), None)
    drop(run, "worker0 worker1", "step")
    found = loss_settled(read_run(run), EvidenceSettings())
    assert (found.ok, found.detail) == (None, "there are too few finite losses to judge")

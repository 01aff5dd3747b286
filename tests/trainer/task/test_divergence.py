"""A loss that stays far above its first value ends the run; one that falls again does not."""

import math
import re
from pathlib import Path

import pytest

from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import DIVERGED
from trainer.task.divergence import Divergence, first_loss_in


def _diverges_at(divergence: Divergence, losses: list[float]) -> int | None:
    """Return the number of the loss that is one too many; steps count from 1."""
    return next((at for at, loss in enumerate(losses, 1) if divergence.add(loss, at)), None)


@pytest.mark.parametrize(
    ("losses", "diverges_at", "left_at"),
    [
        ([1.0, *[20.5] * 5], 6, 2),
        ([20.0] * 50, None, None),  # ten times is not yet far
        ([*[30.0] * 4, 1.0, *[30.0] * 5], 10, 6),  # it came back in between
        ([*[30.0] * 4, *[1.0] * 50], None, None),
    ],
)
def test_a_loss_that_stays_far_above_its_first_value_has_diverged(
    losses: list[float], diverges_at: int | None, left_at: int | None
) -> None:
    divergence = Divergence(5, first=2.0)
    assert _diverges_at(divergence, losses) == diverges_at
    assert divergence.high_since == left_at


@pytest.mark.parametrize(("most_steps", "first"), [(0, 1.0), (5, math.nan)])
def test_no_loss_diverges_without_a_limit_or_a_first_loss(most_steps: int, first: float) -> None:
    assert _diverges_at(Divergence(most_steps, first), [1e9] * 1000) is None


def test_a_run_with_a_diverged_loss_ends_and_names_the_first_loss_of_the_run(tmp_path: Path) -> None:
    flags = ["--replication=local", "--learning_rate=3000", "--steps=100000"]
    with Cluster(tmp_path, ps=0, workers=1, flags=flags) as cluster:
        cluster.start(flags=["--divergence_steps=50"])
        assert cluster.wait() == {"worker0": DIVERGED}
        reason = cluster.only("worker0", "failed").text("reason")
        told = re.fullmatch(
            r"loss is \S+ at local step (\d+), global step \1, more than ten times its first \((\S+)\) "
            r"since global step (\d+); the learning rate is 3000",
            reason,
        )
        assert told, reason
        assert int(told[1]) == int(told[3]) + 49
        # The first loss is that of the run, not of the process.
        first = first_loss_in(cluster.directory("worker0"), "worker", 0)
        assert f"{first:g}" == told[2]

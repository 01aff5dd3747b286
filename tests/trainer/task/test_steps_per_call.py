"""Several steps in one call change only the time, and scheduled duties happen on time."""

import re
from pathlib import Path

import pytest

from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import DIVERGED

LOCAL = ["--replication=local", "--model=linear"]


def test_scheduled_duties_happen_at_their_exact_step(tmp_path: Path) -> None:
    flags = ["--steps=1003", "--steps_to_validate=30", "--checkpoint_interval_steps=50", "--summary_steps=40"]
    flags += [*LOCAL, "--steps_per_call=10", "--checkpoints_to_keep=50"]
    with Cluster(tmp_path, ps=0, workers=1, flags=flags) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": 0}
        finished = cluster.only("worker0", "finished")
        assert (finished.integer("local_step"), finished.integer("global_step")) == (1003, 1003)
        saved = [record.integer("global_step") for record in cluster.records("worker0", "checkpointed")]
        assert {*range(0, 1001, 50), 1003} <= set(saved)  # on a slow machine also by time
        printed = re.findall(r"Step: (\d+), global step: (\d+)", cluster.output("worker0"))
        assert printed == [(str(step), str(step)) for step in range(30, 1003, 30)]
        windows = cluster.records("worker0", "step")
        sizes = [window.integer("steps") for window in windows]
        assert sum(sizes) == 1003
        # In a run of so many six steps make a window, at first one, and no call goes further.
        assert (sizes[:49], max(sizes), sizes[-100:-1]) == ([1] * 49, 6, [6] * 99)
        assert all(window.number("seconds") > 0 for window in windows)
        assert [window.integer("global_step_after") for window in windows] == [
            window.integer("local_step") for window in windows
        ]


@pytest.mark.parametrize("steps_per_call", [1, 32])
def test_a_non_finite_loss_is_reported_with_its_own_step_of_the_call(
    tmp_path: Path, steps_per_call: int
) -> None:
    flags = [*LOCAL, "--learning_rate=1.5", f"--steps_per_call={steps_per_call}", "--steps=100000"]
    with Cluster(tmp_path, ps=0, workers=1, flags=flags) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": DIVERGED}
        reason = cluster.only("worker0", "failed").text("reason")
        said = re.fullmatch(r"loss is (inf|nan) at local step (\d+), global step (\d+); .*1.5", reason)
        assert said, reason
        assert said[2] == said[3]
        # All steps of the call are in the model, and recorded.
        recorded = sum(window.integer("steps") for window in cluster.records("worker0", "step"))
        assert int(said[2]) <= recorded < int(said[2]) + steps_per_call

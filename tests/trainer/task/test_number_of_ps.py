"""A run goes on with another number of ps, whatever pieces of the variables each of them has held."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer.processes import Cluster
from trainer import evaluator
from trainer.contract.exit_codes import FINISHED
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import read_checkpoint

SHAPES = {
    "hidden/weights": (64, 100),
    "hidden/biases": (100,),
    "output/weights": (100, 10),
    "output/biases": (10,),
}
STEPS, MORE = 300, 10


@pytest.mark.parametrize(
    ("replication", "numbers"), [("async", (2, 1, 3)), ("sync", (2, 3)), ("in_graph", (3, 2))]
)
def test_a_run_goes_on_with_another_number_of_ps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replication: str, numbers: Sequence[int]
) -> None:
    flags = [f"--replication={replication}", "--optimizer=adam", "--steps_per_call=5"]
    saved_step = 0
    for ps in numbers:
        steps = saved_step + (MORE if saved_step else STEPS)
        with Cluster(tmp_path, ps=ps, flags=[*flags, f"--steps={steps}"]) as cluster:
            cluster.start()
            assert cluster.wait() == dict.fromkeys(cluster.tasks, 0), cluster.outputs()

            begun = cluster.records("worker0", "restored" if saved_step else "initialised")[-1]
            assert begun.integer("global_step") == saved_step
            parameters = begun.fields["ps_parameters"]
            assert isinstance(parameters, dict)
            held = [its["bytes"] for its in parameters.values()]
            assert len(held) == ps
            assert max(held) <= 1.05 * sum(held) / ps
            saved_step = cluster.records("worker0", "finished")[-1].integer("global_step")
            clients = ("worker0",) if replication == "in_graph" else ("worker0", "worker1")
            cluster.assert_one_fingerprint(*clients)
            checkpoint, _ = read_checkpoint(tmp_path / f"worker0/checkpoints/model.ckpt-{saved_step}")
            assert checkpoint is not None
            slots = {f"{name}/{slot}": shape for name, shape in SHAPES.items() for slot in ("Adam", "Adam_1")}
            found = {name: its.shape for name, its in checkpoint.values.items() if its.shape}
            assert found == SHAPES | slots | {COUNTERS: (4,)}
            # What was learned is there: these few steps would not do.
            assert cluster.metrics()["accuracy"] > 0.93
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert evaluator.main([str(tmp_path / "worker0")]) == FINISHED

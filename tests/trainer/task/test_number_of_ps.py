"""A run resumes with another number of ps, however its variables were spread before."""

import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.processes import Cluster
from tests.trainer.row_files import whole_tables
from trainer import evaluator
from trainer.contract.exit_codes import FINISHED, STOPPED
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import Checkpoint, read_checkpoint

SHAPES = {
    "hidden/weights": (64, 100),
    "hidden/biases": (100,),
    "output/weights": (100, 10),
    "output/biases": (10,),
}
SLOTS = {f"{name}/{slot}": shape for name, shape in SHAPES.items() for slot in ("Adam", "Adam_1")}
STEPS, MORE = 50, 10


@pytest.mark.parametrize(
    ("replication", "servers", "numbers"),
    [("sync", [], (2, 1)), ("in_graph", [0], (2, 3))],
)
@pytest.mark.chaos
def test_a_run_resumes_with_another_number_of_ps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    replication: str,
    servers: Sequence[int],
    numbers: Sequence[int],
) -> None:
    flags = [f"--replication={replication}", "--optimizer=adam", f"--existing_servers={bool(servers)}"]
    with Cluster(tmp_path, numbers[0], flags=flags, servers=servers) as cluster:
        _train_and_stop(cluster)
        saved = _saved(cluster, "initialised")
    # At this rate no step changes a weight.
    more = [f"--steps={saved.global_step + MORE}", "--learning_rate=1e-30"]
    with Cluster(tmp_path, numbers[1], flags=[*flags, *more], servers=servers) as cluster:
        _go_on_from(saved, cluster)
        cluster.assert_one_fingerprint("worker0", *(["worker1"] if replication != "in_graph" else []))
        again = _saved(cluster, "restored")
        # The checkpoint has Adam's numbers for another number of ps: fingerprints cannot be compared.
        assert "fingerprint" not in cluster.records("worker0", "restored")[-1].fields
        assert [name for name in SHAPES if (again.values[name] != saved.values[name]).any()] == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert evaluator.main([str(tmp_path / "worker0")]) == FINISHED


@pytest.mark.parametrize(
    ("replication", "numbers"),
    [("async", (2, 1)), ("sync", (2, 3))],
)
@pytest.mark.chaos
def test_a_run_with_tables_resumes_with_another_number_of_ps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replication: str, numbers: Sequence[int]
) -> None:
    flags = ["--model=wide_deep", "--table_rows=20000", "--batch_size=64", "--steps_per_call=1"]
    flags.append(f"--replication={replication}")
    with Cluster(tmp_path, numbers[0], flags=flags) as cluster:
        _train_and_stop(cluster)
        saved = _last(cluster, "initialised")
        rows = whole_tables(saved)
        # The chief's folder is whole, though each ps has its own part on a disk of its own.
        for ps in (0, 1):
            own = (cluster.directory(f"ps{ps}") / "checkpoints").glob(f"{saved.path.name}.*.rows")
            assert {file.name.split(".")[-3] for file in own} == {f"{ps}-of-2"}
    # At this rate no step changes a row, not even one of zeros.
    more = [f"--steps={saved.global_step + MORE}", "--learning_rate=1e-45"]
    with Cluster(tmp_path, numbers[1], flags=[*flags, *more]) as cluster:
        _go_on_from(saved, cluster)
        cluster.assert_one_fingerprint("worker0", "worker1")
        again = _last(cluster, "restored")
        assert set(again.values) == set(saved.values)
        tables = whole_tables(again)
        assert set(tables) == set(rows)
        for name in ("tables_16", "tables_1"):
            assert tables[name].tobytes() == rows[name].tobytes()
            assert np.all(np.subtract(tables[f"{name}/Adagrad"], rows[f"{name}/Adagrad"]) >= 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert evaluator.main([str(tmp_path / "worker0")]) == FINISHED


def _train_and_stop(cluster: Cluster) -> None:
    cluster.start(flags=["--steps=1000000"])
    cluster.until_steps(STEPS)
    cluster.signal("worker0", signal.SIGTERM)
    assert cluster.wait() == dict.fromkeys(cluster.tasks, 0) | {"worker0": STOPPED}, cluster.outputs()


def _go_on_from(saved: Checkpoint, cluster: Cluster) -> None:
    cluster.start()
    assert cluster.wait() == dict.fromkeys(cluster.tasks, 0), cluster.outputs()
    assert cluster.records("worker0", "restored")[-1].integer("global_step") == saved.global_step


def _saved(cluster: Cluster, begun: str) -> Checkpoint:
    """Return the last checkpoint, which holds whole variables, where each ps held as much as others."""
    checkpoint = _last(cluster, begun)
    shapes = {name: value.shape for name, value in checkpoint.values.items() if value.shape}
    assert shapes == SHAPES | SLOTS | {COUNTERS: (4,)}
    return checkpoint


def _last(cluster: Cluster, begun: str) -> Checkpoint:
    """Return the last checkpoint of a run in which each ps held as much as others."""
    parameters = cluster.records("worker0", begun)[-1].fields["ps_parameters"]
    assert isinstance(parameters, dict)
    held = [its["bytes"] for its in parameters.values()]
    assert len(held) == len(cluster.hosts["ps"])
    assert max(held) <= 1.05 * sum(held) / len(held)
    step = cluster.records("worker0", "finished")[-1].integer("global_step")
    checkpoint, problem = read_checkpoint(cluster.directory("worker0") / f"checkpoints/model.ckpt-{step}")
    assert checkpoint is not None, problem
    return checkpoint

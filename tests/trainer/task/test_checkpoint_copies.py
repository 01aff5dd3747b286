"""A run resumes from copies of its checkpoints on another host after the loss of the chief's disk."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import INPUT, STOPPED
from trainer.model.checkpoints import checkpoint_paths, read_checkpoint

PS_ELSEWHERE, WORKER1_ELSEWHERE = (0,), (2,)
SAVES_OFTEN = "--checkpoint_interval_seconds=0.5"
TABLES = ["--model=wide_deep", "--table_rows=20000", "--batch_size=64", "--steps_per_call=1"]
MORE = 100


class _Hosts(Cluster):
    """Tasks on two hosts: the run's directory has the same path on both, so here it is one folder."""

    def directory(self, task: str) -> Path:  # noqa: ARG002 - the same for all
        return self.folder / "run"


def _copies(folder: Path) -> list[Path]:
    copies = folder / "run" / "copies"
    return checkpoint_paths(copies) if copies.is_dir() else []


def _stopped_run(folder: Path, elsewhere: Sequence[int], flags: Sequence[str] = ()) -> None:
    """Train until some copies count, and stop."""
    with _Hosts(folder, flags=[SAVES_OFTEN, *flags], elsewhere=elsewhere) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until(lambda: len(_copies(folder)) > 1, "copies")
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0) | {"worker0": STOPPED}, cluster.outputs()


def _lose_the_chiefs_disk(folder: Path) -> None:
    shutil.rmtree(folder / "run" / "checkpoints")
    for left in (folder / "run").glob("*/worker0*"):
        left.unlink() if left.is_file() else shutil.rmtree(left)


@pytest.mark.parametrize(
    ("elsewhere", "keeper", "flags"),
    [
        pytest.param(PS_ELSEWHERE, "ps0", ["--optimizer=adam"], marks=pytest.mark.chaos),
        pytest.param(PS_ELSEWHERE, "ps0", ["--replication=sync"], marks=pytest.mark.chaos),
        pytest.param(PS_ELSEWHERE, "ps0", TABLES, marks=pytest.mark.chaos),
        pytest.param(WORKER1_ELSEWHERE, "worker1", [], marks=pytest.mark.chaos),
        (WORKER1_ELSEWHERE, "worker1", ["--replication=in_graph"]),
    ],
)
def test_a_run_resumes_from_a_copy_after_the_loss_of_the_chiefs_disk(
    tmp_path: Path, elsewhere: Sequence[int], keeper: str, flags: Sequence[str]
) -> None:
    _stopped_run(tmp_path, elsewhere, flags)
    newest = _copies(tmp_path)[-1]
    copy, problem = read_checkpoint(newest)
    assert copy is not None, problem
    if keeper == "ps0" or "in_graph" in str(flags):  # it outlives the chief
        assert newest.name == checkpoint_paths(tmp_path / "run" / "checkpoints")[-1].name
    _lose_the_chiefs_disk(tmp_path)
    more = 5 if flags is TABLES else MORE
    last = f"--steps={copy.global_step + more}"
    with _Hosts(tmp_path, flags=[SAVES_OFTEN, *flags, last], elsewhere=elsewhere) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0), cluster.outputs()
        fetched, restored = cluster.only("worker0", "checkpoint_fetched"), cluster.only("worker0", "restored")
        assert (fetched.integer("global_step"), fetched.text("task")) == (copy.global_step, keeper)
        assert restored.integer("global_step") == copy.global_step
        assert restored.text("fingerprint") == copy.fingerprint
        assert cluster.only("worker0", "finished").integer("global_step") >= copy.global_step + more


@pytest.mark.chaos
def test_a_run_with_only_damaged_copies_fails_instead_of_starting_over(tmp_path: Path) -> None:
    _stopped_run(tmp_path, PS_ELSEWHERE)
    _lose_the_chiefs_disk(tmp_path)
    copies = [file.name for file in (tmp_path / "run" / "copies").glob("*.data-*")]
    for name in copies:
        (tmp_path / "run" / "copies" / name).write_bytes(b"x")
    with _Hosts(tmp_path, elsewhere=PS_ELSEWHERE) as cluster:
        cluster.start()
        assert cluster.wait("worker0") == {"worker0": INPUT}, cluster.outputs()
        assert len(cluster.records("worker0", "checkpoint_damaged")) == len(copies)
        assert cluster.records("worker0", "initialised") == []


def test_a_failed_copy_is_recorded_and_the_run_continues(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "copies").write_text("in the way")
    with _Hosts(tmp_path, flags=["--steps=300"], elsewhere=PS_ELSEWHERE) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0), cluster.outputs()
        failed = cluster.records("worker0", "checkpoint_copy_failed")
        assert {record.text("task") for record in failed} == {"ps0"}
        assert "copies" in failed[-1].text("reason")
        assert cluster.records("worker0", "checkpoint_copied") == []
        assert "no copies of checkpoints are kept" in cluster.output("ps0")


@pytest.mark.parametrize(
    ("elsewhere", "flags"),
    [pytest.param((), [], marks=pytest.mark.chaos), (PS_ELSEWHERE, ["--checkpoint_copies=1"])],
)
def test_no_copies_are_kept_without_another_host_or_with_checkpoint_copies_1(
    tmp_path: Path, elsewhere: Sequence[int], flags: Sequence[str]
) -> None:
    with _Hosts(tmp_path, flags=["--steps=300", *flags], elsewhere=elsewhere) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0), cluster.outputs()
        assert not (tmp_path / "run" / "copies").exists()
        assert cluster.records("worker0", "checkpointed")
        assert not [record for record in cluster.records("worker0") if "cop" in record.event]

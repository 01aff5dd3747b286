"""Checkpoints that do not read whole are passed over, only the newest are kept: on TensorFlow's own files."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import (
    Checkpoint,
    CheckpointFolder,
    DamagedError,
    Fetch,
    NotFinite,
    RestoreOperation,
    checkpoint_paths,
    step_in,
)
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    folder = CheckpointFolder(tmp_path / "checkpoints", keep=2)
    for step in (100, 200, 300):
        _save(folder, step)
    return folder


def _none_damaged(path: Path, problem: str) -> None:
    pytest.fail(f"{path}: {problem}")


def _save(folder: CheckpointFolder, step: int) -> None:
    folder.write({COUNTERS: np.array([step, 0, step]), "weights": np.full(1000, step, np.float32)})


def _names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.name for path in folder.directory.iterdir())


def test_the_newest_checkpoint_is_read_and_the_oldest_is_removed(folder: CheckpointFolder) -> None:
    newest = folder.newest_good(_none_damaged)
    assert newest is not None
    assert newest.global_step == 300
    assert newest.values["weights"][999] == 300
    assert not [name for name in _names(folder) if "-100" in name]
    state = tf.train.get_checkpoint_state(str(folder.directory))
    assert state.model_checkpoint_path.endswith("model.ckpt-300")
    assert len(state.all_model_checkpoint_paths) == 2


def _flip_a_bit(content: bytes) -> bytes:
    return content[:500] + bytes([content[500] ^ 1]) + content[501:]


DATA, INDEX = "data-00000-of-00001", "index"


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (DATA, lambda content: content[:1000]),
        (DATA, _flip_a_bit),
        (DATA, None),  # it is not there
        (INDEX, lambda content: content[:20]),
        (INDEX, lambda _content: b""),
    ],
)
def test_a_damaged_newest_checkpoint_is_skipped_and_reported(
    folder: CheckpointFolder, ending: str, damage: Callable[[bytes], bytes] | None
) -> None:
    file = folder.directory / f"model.ckpt-300.{ending}"
    content = file.read_bytes()
    file.unlink()
    if damage is not None:
        file.write_bytes(damage(content))
    damaged: dict[str, str] = {}

    found = folder.newest_good(lambda path, problem: damaged.update({path.name: problem}))

    assert found is not None
    assert found.global_step == 200
    assert list(damaged) == ["model.ckpt-300"]
    assert damaged["model.ckpt-300"]
    # A later save with a lower step is the newest now, and is not removed in favour of the damaged one.
    _save(folder, 250)
    again = folder.newest_good(_none_damaged)
    assert again is not None
    assert again.global_step == 250


def test_a_run_with_only_damaged_checkpoints_fails_instead_of_starting_over(folder: CheckpointFolder) -> None:
    for file in folder.directory.glob(f"*.{DATA}"):
        file.write_bytes(b"")
    damaged: list[int] = []
    for _ in range(2):  # a task that is started again refuses as well
        with pytest.raises(TaskFailure, match=r"are damaged \(damaged-model.ckpt-200, .*300\)") as failure:
            folder.newest_good(lambda path, _: damaged.append(step_in(path)))
        assert failure.value.code == INPUT
    assert damaged == [300, 200]


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_diverged_model_is_not_saved(folder: CheckpointFolder, number: float) -> None:
    before = _names(folder)
    with pytest.raises(NotFinite, match=r"^biases is not finite$"):
        folder.write({COUNTERS: np.array([400, 0, 400]), "biases": np.array([1, number], np.float32)})
    assert _names(folder) == before


def test_an_empty_folder_has_no_good_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    assert folder.newest_good(_none_damaged) is None


def test_remains_of_an_interrupted_save_are_removed(folder: CheckpointFolder) -> None:
    leftover = folder.directory / "model.ckpt-400.data-00000-of-00001.tempstate123"
    leftover.write_bytes(b"half")
    again = CheckpointFolder(folder.directory, keep=2)
    assert not leftover.exists()
    newest = again.newest_good(_none_damaged)
    assert newest is not None
    assert newest.global_step == 300


def test_a_checkpoint_is_synced_to_disk_before_it_gets_its_name(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(f"{path.name}, with {step_in(checkpoint_paths(folder.directory)[-1])} there")

    monkeypatch.setattr(os, "fsync", noted)
    _save(folder, 400)
    assert synced == [
        f"model.ckpt-400.tempstate.{DATA}, with 300 there",
        f"model.ckpt-400.tempstate.{INDEX}, with 300 there",
        "checkpoints, with 400 there",
    ]


@pytest.mark.parametrize(
    ("step", "fingerprint", "problem"),
    [(400, "0" * 16, "0000000000000000 was written, "), (401, None, "^it holds global step 400$")],
)
def test_a_checkpoint_with_another_fingerprint_or_step_is_not_accepted(
    folder: CheckpointFolder, tmp_path: Path, step: int, fingerprint: str | None, problem: str
) -> None:
    before = _names(folder)
    _put(_elsewhere(tmp_path, 400), 400, folder.unfinished(step))
    with pytest.raises(DamagedError, match=problem):
        folder.accept(step, fingerprint)
    folder.remove_unfinished()
    assert _names(folder) == before


def test_a_checkpoint_removes_those_of_later_steps_from_before_a_restore(folder: CheckpointFolder) -> None:
    _save(folder, 250)
    assert [step_in(path) for path in checkpoint_paths(folder.directory)] == [200, 250]


def _elsewhere(tmp_path: Path, step: int) -> Path:
    """Return the folder of another host with the checkpoint of a step."""
    other = CheckpointFolder(tmp_path / "elsewhere", keep=9)
    _save(other, step)
    return other.directory


def _put(source: Path, step: int, target: Path) -> None:
    for ending in (DATA, INDEX):
        shutil.copy(source / f"model.ckpt-{step}.{ending}", f"{target}.{ending}")


def _fetch(source: Path, step: int) -> Fetch:
    return lambda folder: _put(source, step, folder.unfinished(step))


@pytest.mark.parametrize(("step", "newest"), [(400, 400), (300, 300), (100, 300)])
def test_a_copy_is_restored_only_if_it_is_newer(
    folder: CheckpointFolder, tmp_path: Path, step: int, newest: int
) -> None:
    copies = {step: [_fetch(_elsewhere(tmp_path, step), step)]}
    found = folder.newest_good(_none_damaged, copies)
    assert found is not None
    assert found.global_step == newest
    assert found.path.parent == folder.directory


def test_a_damaged_checkpoint_is_replaced_by_its_copy(folder: CheckpointFolder, tmp_path: Path) -> None:
    (folder.directory / f"model.ckpt-300.{DATA}").write_bytes(b"")
    damaged: list[int] = []
    copies = {300: [_fetch(_elsewhere(tmp_path, 300), 300)]}
    found = folder.newest_good(lambda path, _: damaged.append(step_in(path)), copies)
    assert found is not None
    assert found.global_step == 300
    assert damaged == [300]


def test_a_damaged_copy_is_skipped_and_reported(folder: CheckpointFolder, tmp_path: Path) -> None:
    source = _elsewhere(tmp_path, 400)
    (source / f"model.ckpt-400.{DATA}").write_bytes(b"")
    damaged: list[int] = []
    found = folder.newest_good(
        lambda path, _: damaged.append(step_in(path)), {400: [_fetch(source, 400), _fetch(source, 400)]}
    )
    assert found is not None
    assert found.global_step == 300
    assert damaged == [400, 400]
    assert not [name for name in _names(folder) if "400" in name]


def test_a_run_with_only_a_damaged_copy_fails_instead_of_starting_over(tmp_path: Path) -> None:
    source = _elsewhere(tmp_path, 400)
    (source / f"model.ckpt-400.{DATA}").write_bytes(b"")
    folder = CheckpointFolder(tmp_path / "checkpoints", keep=2)
    with pytest.raises(TaskFailure, match=r"are damaged \(model.ckpt-400\)") as failure:
        folder.newest_good(lambda _path, _problem: None, {400: [_fetch(source, 400)]})
    assert failure.value.code == INPUT


def test_variables_of_one_ps_are_restored_to_each_ps_of_a_larger_cluster() -> None:
    """With Adam each ps has its own powers of beta."""
    names = ("beta1_power", "beta1_power_1", "beta2_power_3", "beta2_power")
    held = {"beta1_power": 0.5, "beta2_power": 0.25, "beta2_power_3": 0.75, "beta1_power_7": 0.125}
    found = _restored(names, held)
    assert found == [0.5, 0.5, 0.75, 0.25]


def test_a_variable_is_not_restored_from_another_with_a_similar_name() -> None:
    with pytest.raises(TaskFailure, match=r"nothing for weights/Adam_1, this run needs float32") as failure:
        _restored(("weights/Adam_1",), {"weights/Adam": 0.5})
    assert failure.value.code == CONFIGURATION


def _restored(names: tuple[str, ...], held: dict[str, float]) -> list[float]:
    values = {name: np.array(value, np.float32) for name, value in held.items()}
    with tf.Graph().as_default(), v1.Session() as session:
        zeros = v1.zeros_initializer()
        variables = [v1.get_variable(name, [], initializer=zeros, use_resource=True) for name in names]
        restore = RestoreOperation(variables)
        restore.run(session, Checkpoint(Path("model.ckpt-1"), 1, values))
        return [float(value) for value in session.run(variables)]

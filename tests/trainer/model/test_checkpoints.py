"""Checkpoints that do not read whole are passed over, only the newest are kept: on TensorFlow's own files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import Checkpoint, CheckpointFolder, NotFinite, RestoreOperation, step_in
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


def test_the_newest_is_read_and_the_oldest_is_gone(folder: CheckpointFolder) -> None:
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
def test_a_damaged_newest_is_passed_over_and_said(
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


def test_where_all_are_damaged_the_run_does_not_begin_anew(folder: CheckpointFolder) -> None:
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


def test_without_any_good_checkpoint_there_is_none(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    assert folder.newest_good(_none_damaged) is None


def test_what_a_save_cut_short_has_left_is_removed(folder: CheckpointFolder) -> None:
    leftover = folder.directory / "model.ckpt-400.data-00000-of-00001.tempstate123"
    leftover.write_bytes(b"half")
    again = CheckpointFolder(folder.directory, keep=2)
    assert not leftover.exists()
    newest = again.newest_good(_none_damaged)
    assert newest is not None
    assert newest.global_step == 300


def test_a_checkpoint_of_fewer_ps_gives_each_what_it_holds_once() -> None:
    """With adam each ps has its own powers of beta."""
    names = ("beta1_power", "beta1_power_1", "beta2_power_3", "beta2_power")
    held = {"beta1_power": 0.5, "beta2_power": 0.25, "beta2_power_3": 0.75, "beta1_power_7": 0.125}
    found = _restored(names, held)
    assert found == [0.5, 0.5, 0.75, 0.25]


def test_nothing_else_is_taken_from_a_name_that_is_like_it() -> None:
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

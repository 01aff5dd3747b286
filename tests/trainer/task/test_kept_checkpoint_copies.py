"""A task accepts the files that another host sent as a copy of a checkpoint, or refuses them."""

from pathlib import Path

import numpy as np
import pytest

from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import CheckpointFolder, checkpoint_paths, step_in
from trainer.task.checkpoint_copies import SENT_SUFFIX
from trainer.task.kept_checkpoint_copies import accept_copies


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "copies", keep=2)


def _send(folder: CheckpointFolder, step: int, fingerprint: str = "") -> None:
    """Send a checkpoint, with its own fingerprint where none is named."""
    other = CheckpointFolder(folder.directory.parent / "sender", keep=9)
    values = {COUNTERS: np.array([step, 0, step]), "weights": np.full(100, step, np.float32)}
    path, own = other.write(values)
    for file in other.directory.glob(f"{path.name}.*"):
        file.rename(f"{folder.unfinished(step)}{file.name.removeprefix(path.name)}")
    (folder.directory / f"model.ckpt-{step}{SENT_SUFFIX}").write_text(fingerprint or own)


def _steps(folder: CheckpointFolder) -> list[int]:
    return [step_in(path) for path in checkpoint_paths(folder.directory)]


def test_only_the_newest_copies_are_kept(folder: CheckpointFolder) -> None:
    for step in (100, 200, 300):
        _send(folder, step)
        accept_copies(folder)
    assert _steps(folder) == [200, 300]
    assert not [*folder.directory.glob("*tempstate*")]


def test_a_copy_with_another_fingerprint_is_refused(
    folder: CheckpointFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    _send(folder, 100)
    accept_copies(folder)
    _send(folder, 200, "0123456789abcdef")
    accept_copies(folder)
    assert _steps(folder) == [100]
    assert not [*folder.directory.glob("*tempstate*")]
    assert "at global step 200 is refused: 0123456789abcdef was written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "fingerprint"),
    [
        (f"model.ckpt-100{SENT_SUFFIX}", "g" * 16),
        (f"model.ckpt-100{SENT_SUFFIX}", "../../etc/passwd"),
        (f"model.ckpt-{'9' * 19}{SENT_SUFFIX}", "0" * 16),
        (f"other-100{SENT_SUFFIX}", "0" * 16),
    ],
)
def test_files_with_an_invalid_name_or_fingerprint_are_no_copy(
    folder: CheckpointFolder, name: str, fingerprint: str
) -> None:
    _send(folder, 100)
    (folder.directory / f"model.ckpt-100{SENT_SUFFIX}").unlink()
    (folder.directory / name).write_text(fingerprint)
    accept_copies(folder)
    assert _steps(folder) == []


def test_a_copy_is_accepted_only_once_its_fingerprint_is_complete(folder: CheckpointFolder) -> None:
    _send(folder, 100)
    file = folder.directory / f"model.ckpt-100{SENT_SUFFIX}"
    fingerprint = file.read_text()
    for sent, steps in ((fingerprint[:15], []), (fingerprint, [100])):
        file.write_text(sent)
        accept_copies(folder)
        assert _steps(folder) == steps


def test_a_restarted_task_removes_an_unfinished_copy(folder: CheckpointFolder) -> None:
    _send(folder, 100)
    again = CheckpointFolder(folder.directory, keep=2)
    accept_copies(again)
    assert _steps(again) == []

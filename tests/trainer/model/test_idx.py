"""IDX files: MNIST's own names, plain or compressed; each way to be wrong is named with the file."""

import gzip
import os
import struct
from pathlib import Path

import pytest

from trainer.contract.exit_codes import INPUT
from trainer.model import data, idx
from trainer.process.failure import TaskFailure

_NOBODY = 65534
IMAGES = struct.pack(">IIII", 0x803, 3, 2, 2) + bytes(range(12))
LABELS = struct.pack(">II", 0x801, 3) + bytes([7, 8, 9])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(LABELS))
    return tmp_path


def test_plain_and_compressed_files_are_read(folder: Path) -> None:
    images, labels = idx.read_images_and_labels(folder, "train")
    assert images.shape == (3, 2, 2)
    assert images[2].tolist() == [[8, 9], [10, 11]]
    assert labels.tolist() == [7, 8, 9]


def test_the_bundled_digits_are_whole() -> None:
    bundled = Path(idx.__file__).parent / "digits"
    assert idx.read_images_and_labels(bundled, "train")[0].shape == (1437, 8, 8)
    images, labels = idx.read_images_and_labels(bundled, "t10k")
    assert images.shape == (360, 8, 8)
    assert images.max() == 255
    assert set(labels.tolist()) == set(range(10))


def _damaged_in_the_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (
            None,
            "has none of train-images-idx3-ubyte, train-images-idx3-ubyte.gz, train-images.idx3-ubyte,"
            " train-images.idx3-ubyte.gz",
        ),
        (LABELS, "train-images-idx3-ubyte is 11 bytes long, its header alone needs 16"),
        (LABELS + bytes(9), "starts with 0x00000801, expected 0x00000803"),
        (IMAGES[:-1], "holds 27 bytes, expected 28 for 3 x 2 x 2: cut short"),
        (IMAGES + b"x", "holds 29 bytes, expected 28 for 3 x 2 x 2: something follows"),
        (gzip.compress(IMAGES)[:-9], "cannot be decompressed"),
        (_damaged_in_the_middle(gzip.compress(IMAGES)), "cannot be decompressed"),
        (gzip.compress(IMAGES) + b"x", "cannot be decompressed"),
        (b"", "train-images-idx3-ubyte is 0 bytes long"),
        (struct.pack(">IIII", 0x803, 2, 2, 2) + bytes(8), "holds 2 images and"),
        (struct.pack(">IIII", 0x803, 3, 0, 2), "holds no image: 3 x 0 x 2, expected at least"),
    ],
)
def test_a_wrong_file_of_images_is_named_with_its_problem(
    folder: Path, images: bytes | None, said: str
) -> None:
    (folder / "train-images-idx3-ubyte").unlink()
    if images is not None:
        (folder / "train-images-idx3-ubyte").write_bytes(images)
    with pytest.raises(TaskFailure) as failure:
        idx.read_images_and_labels(folder, "train")
    assert failure.value.code == INPUT
    assert said in failure.value.reason
    assert str(folder) in failure.value.reason


def test_file_names_with_a_dot_are_accepted(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").rename(folder / "train-images.idx3-ubyte")
    assert idx.read_images_and_labels(folder, "train")[0].shape == (3, 2, 2)


def test_a_missing_data_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskFailure, match="nowhere is not a folder on this host") as failure:
        idx.read_images_and_labels(tmp_path / "nowhere", "train")
    assert "trainer_data_dir" in failure.value.reason


def test_an_unreadable_data_folder_is_named(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(_NOBODY)
        with pytest.raises(TaskFailure) as failure:
            idx.read_images_and_labels(closed, "train")
    finally:
        os.seteuid(user)
    assert failure.value.code == INPUT
    assert "cannot be read: Permission denied" in failure.value.reason


def test_a_label_outside_0_to_9_is_named(tmp_path: Path) -> None:
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(IMAGES)
        labels = struct.pack(">II", 0x801, 3) + bytes([7, 8, 10])
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    with pytest.raises(TaskFailure, match="has the label 10, expected 0 to 9"):
        data.digits(str(tmp_path))

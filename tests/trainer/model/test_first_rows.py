"""What the controller says of a data folder's first rows, beside what a task says that reads the folder."""

import gzip
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.contract.data_files import CATEGORIES, NUMBERS, first_problem
from trainer.contract.exit_codes import INPUT
from trainer.contract.model_files import MODELS
from trainer.contract.settings import TrainingSettings
from trainer.model.models import REGISTRY
from trainer.process.failure import TaskFailure

CLICK = b"1\t" + b"\t".join([b"7"] * NUMBERS) + b"\t" + b"\t".join([b"0a1b2c3d"] * CATEGORIES) + b"\n"
COMMAS = CLICK.replace(b"\t", b",")
IMAGES = struct.pack(">IIII", 0x803, 3, 2, 2) + bytes(range(12))
LABELS = struct.pack(">II", 0x801, 3) + bytes([7, 8, 9])
GOOD: Mapping[str, Mapping[str, bytes]] = {
    "mnist_mlp": {
        "train-images-idx3-ubyte": IMAGES,
        "train-labels-idx1-ubyte.gz": gzip.compress(LABELS),
        "t10k-images.idx3-ubyte": IMAGES,
        "t10k-labels.idx1-ubyte": LABELS,
    },
    "dlrm": {"train_0.tsv": CLICK * 2000, "train_1.tsv.gz": gzip.compress(CLICK * 2000), "test.tsv": CLICK},
}
# The model, the file that is another, what it holds (None: it is not there), and what is said of it.
BAD = [
    ("mnist_mlp", "train-images-idx3-ubyte", None, "has none of train-images-idx3-ubyte, train-images"),
    ("mnist_mlp", "train-images-idx3-ubyte", b"GIF89a" * 9, "starts with 0x47494638, expected 0x00000803"),
    ("mnist_mlp", "train-images-idx3-ubyte", IMAGES[:-1], "holds 27 bytes, expected 28 for 3 x 2 x 2"),
    ("mnist_mlp", "train-labels-idx1-ubyte.gz", b"\x1f\x8b, it says", "cannot be decompressed"),
    ("mnist_mlp", "t10k-labels.idx1-ubyte", LABELS[:-1] + b"\x0a", "has the label 10, expected 0 to 9"),
    ("mnist_mlp", "t10k-images.idx3-ubyte", struct.pack(">IIII", 0x803, 0, 2, 2), "holds 0 images and"),
    ("dlrm", "test.tsv", None, "has no file test*; expected files of clicks to train on"),
    ("dlrm", "test.tsv", b"", "has no line; expected lines of a label, 13 integers"),
    ("dlrm", "train_0.tsv", COMMAS * 9000, "train_0.tsv line 1 (1 column): 1,7,7,7"),
    ("dlrm", "train_0.tsv", b"label\ti1\n" + COMMAS * 9000, "train_0.tsv line 1 (2 columns): label\\ti1"),
    ("dlrm", "train_1.tsv.gz", gzip.compress(COMMAS * 9000)[:-9], "train_1.tsv.gz line 1 (1 column)"),
    ("dlrm", "train_1.tsv.gz", b"\x1f\x8b, it says", "train_1.tsv.gz cannot be decompressed"),
    ("dlrm", "train_1.tsv.gz", b"0" * 70_000, "train_1.tsv.gz line 1 is longer than 65536 bytes"),
    ("dlrm", "test.tsv", b"label\n" + CLICK * 500, "1 of 501 lines in"),
]


def _folder(place: Path, model: str, name: str = "", content: bytes | None = None) -> Path:
    files: dict[str, bytes | None] = {**GOOD[model]}
    if name:
        files[name] = content
    for each, held in files.items():
        if held is not None:
            (place / each).write_bytes(held)
    return place


def _told_by_a_task(model: str, folder: Path) -> str:
    settings = TrainingSettings(model=model, data_dir=str(folder), table_rows=50_000)
    try:
        REGISTRY[model].load(settings, 1)
    except TaskFailure as failure:
        assert failure.code == INPUT
        return failure.reason
    return ""


@pytest.mark.parametrize(("model", "name", "content", "said"), BAD)
def test_a_wrong_file_is_named_as_a_task_names_it(
    model: str, name: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    folder = _folder(tmp_path, model, name, content)
    assert said in first_problem(REGISTRY[model].card.data, folder)
    assert said.rpartition("longer")[0] in _told_by_a_task(model, folder)


@pytest.mark.parametrize("model", MODELS)
def test_each_model_that_reads_files_has_a_check_of_them(model: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no data", "utf-8")
    assert bool(first_problem(REGISTRY[model].card.data, tmp_path)) == bool(_told_by_a_task(model, tmp_path))


@pytest.mark.parametrize("model", GOOD)
def test_what_a_task_reads_has_no_problem(model: str, tmp_path: Path) -> None:
    folder = _folder(tmp_path, model)
    if model == "dlrm":  # a task leaves such lines out
        (folder / "train_2.tsv").write_bytes(b"label\ti1\n" + CLICK * 9000)
    assert not _told_by_a_task(model, folder)
    assert not first_problem(REGISTRY[model].card.data, folder)


def test_a_file_is_no_folder_and_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    file.write_bytes(CLICK)
    assert first_problem("clicks", file) == f"{file} is a file; expected a folder with the files"
    (tmp_path / "test.tsv").symlink_to("/proc/self/mem")
    assert first_problem("clicks", tmp_path) == f"{tmp_path}/test.tsv cannot be read: Input/output error"

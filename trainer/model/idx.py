"""Reading MNIST's file format (IDX), plain or compressed with gzip."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.contract.data_files import (
    IMAGES_MAGIC,
    LABELS_MAGIC,
    idx_files,
    idx_header,
    read_plain,
    require_alike,
    require_bytes,
)
from trainer.contract.exit_codes import INPUT
from trainer.process.failure import TaskFailure

_ADVICE = "expected MNIST's files there, readable for the task's user: --data_dir (trainer_data_dir) names it"

Pixels = npt.NDArray[np.uint8]


def read_images_and_labels(folder: Path, part: str) -> tuple[Pixels, Pixels]:
    """Return (images uint8 [count, rows, columns], labels uint8 [count]) of a part ("train" or "t10k").

    Raises TaskFailure (`input`), which names the file, if a file in `folder` is missing or damaged, or if the
    two numbers of examples differ.
    """
    try:
        images_file, labels_file = idx_files(folder, part)
    except ValueError as error:
        raise TaskFailure(INPUT, f"{error}; {_ADVICE}") from error
    try:
        images, labels = _read(images_file, IMAGES_MAGIC), _read(labels_file, LABELS_MAGIC)
        require_alike((images_file, images.shape), (labels_file, labels.shape))
    except ValueError as error:
        raise TaskFailure(INPUT, str(error)) from error
    return images, labels


def _read(path: Path, magic: int) -> Pixels:
    content = read_plain(path)
    header, shape = idx_header(path, content, magic)
    require_bytes(path, len(content), header, shape)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)

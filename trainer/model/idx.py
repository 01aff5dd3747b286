"""Reading MNIST's file format (IDX), plain or compressed with gzip."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.contract.exit_codes import INPUT
from trainer.process.failure import TaskFailure

IMAGES_MAGIC = 0x00000803
LABELS_MAGIC = 0x00000801
_GZIP_MAGIC = b"\x1f\x8b"

_ADVICE = "expected MNIST's files there, readable for the task's user: --data_dir (trainer_data_dir) names it"

Pixels = npt.NDArray[np.uint8]


def read_images_and_labels(folder: Path, part: str) -> tuple[Pixels, Pixels]:
    """Return images [count, rows, columns] and labels [count] of a part (`train` or `t10k`).

    Raises TaskFailure (`input`) that names the file and what is wrong with it.
    """
    images_file = find(folder, f"{part}-images-idx3-ubyte")
    labels_file = find(folder, f"{part}-labels-idx1-ubyte")
    images, labels = read(images_file, IMAGES_MAGIC), read(labels_file, LABELS_MAGIC)
    if len(images) != len(labels):
        found = f"{images_file} holds {len(images)} images and {labels_file} {len(labels)} labels"
        raise TaskFailure(INPUT, f"{found}; expected one label for each image")
    if images.size == 0:
        shape = " x ".join(map(str, images.shape))
        raise TaskFailure(INPUT, f"{images_file} holds no image: {shape}, expected at least 1 x 1 x 1")
    return images, labels


def find(folder: Path, name: str) -> Path:
    """Return the path of a file, which may have the suffix `.gz`, and a dot or a hyphen before `idx`.

    Raises TaskFailure (`input`) that lists the names which were tried.
    """
    dotted = name.replace("-idx", ".idx")
    names = [name, f"{name}.gz", dotted, f"{dotted}.gz"]
    try:
        found = [folder / candidate for candidate in names if (folder / candidate).is_file()]
        is_folder = folder.is_dir()
    except OSError as error:
        raise TaskFailure(INPUT, f"{folder} cannot be read: {error.strerror}; {_ADVICE}") from error
    if found:
        return found[0]
    if not is_folder:
        raise TaskFailure(INPUT, f"{folder} is not a folder on this host; {_ADVICE}")
    raise TaskFailure(INPUT, f"{folder} has none of {', '.join(names)}; {_ADVICE}")


def read(path: Path, magic: int) -> Pixels:
    """Return the array in an IDX file of unsigned bytes. Raises TaskFailure (`input`)."""
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        why = f"expected a whole gzip file: {error}"
        raise TaskFailure(INPUT, f"{path} cannot be decompressed, {why}") from error
    except OSError as error:
        raise TaskFailure(INPUT, f"{path} cannot be read: {error.strerror}") from error
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise TaskFailure(INPUT, f"{path} is {len(content)} bytes long, its header alone needs {header}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        starts = f"{path} starts with {found:#010x}, expected {magic:#010x}"
        raise TaskFailure(INPUT, f"{starts}: another kind of file")
    expected = header + math.prod(shape)
    if len(content) != expected:
        wanted = f"expected {expected} for {' x '.join(map(str, shape))}"
        why = "cut short" if len(content) < expected else "something follows the data"
        raise TaskFailure(INPUT, f"{path} holds {len(content)} bytes, {wanted}: {why}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)

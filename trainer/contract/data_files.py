"""The files that built-in models train on, without TensorFlow: MNIST's (IDX), and Criteo's lines of clicks.

Both may be compressed with gzip. IDX is described on http://yann.lecun.com/exdb/mnist: a magic number, the
dimensions, and unsigned bytes. A line of clicks has 40 columns with a tab between them, and no quotes: the
label, 13 integers of at most nine digits, and 26 values of eight hexadecimal digits. Integers and values may
be empty. Carriage returns are ignored.
"""

import gzip
import math
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from trainer.contract.model_card import CLICKS, IMAGES
from trainer.host.wording import counted, cut

IMAGES_MAGIC, LABELS_MAGIC = 0x00000803, 0x00000801
LARGEST_LABEL = 9

NUMBERS, CATEGORIES = 13, 26
COLUMNS = 1 + NUMBERS + CATEGORIES
CLICK_LINE = rf"[01](\t(-?[0-9]{{1,9}})?){{{NUMBERS}}}(\t([0-9a-f]{{8}})?){{{CATEGORIES}}}"
# The share of lines that may be damaged: they are left out. If more are damaged, the files are refused.
MOST_DAMAGED = 0.001
MOST_NAMED = 3
_CLICK = re.compile(CLICK_LINE.encode())
_EXPECTED_CLICK = (
    f"a label, {NUMBERS} integers and {CATEGORIES} values of 8 hexadecimal digits, with tabs between"
)
_GZIP_MAGIC = b"\x1f\x8b"
_BYTES_READ, _LONGEST_LINE = 2**20, 2**16
_TAB, _SHOWN = b"\t", 60
_FIRST_ROWS, _MOST_FILES = 1000, 100


class _Beginning(NamedTuple):
    """The shape of an IDX file, such as [60000, 28, 28], and its first values, one byte each."""

    shape: list[int]
    values: bytes


def first_problem(data: str | None, folder: Path) -> str:
    """Return the first problem of the data files in a folder, in words; "" if their first rows are good.

    `data` is the `data` of a model's card: "images" or "clicks"; for None, return "" without reading. A
    missing folder or file is a problem; a few damaged lines of clicks are none. The time does not grow with
    the size of the files.
    """
    if data is None:
        return ""
    if folder.is_file():
        return f"{folder} is a file; expected a folder with the files"
    try:
        _CHECKS[data](folder)
    except ValueError as error:
        return str(error)
    return ""


def idx_file(folder: Path, name: str) -> Path:
    """Return the path of the file `name`, such as "train-labels-idx1-ubyte", in `folder`.

    The file may have the suffix `.gz`, and a dot instead of the hyphen before `idx`. If several exist, the
    first counts of: `name`, `name`.gz, the name with the dot, the same with .gz. Raises ValueError if none
    exists.
    """
    dotted = name.replace("-idx", ".idx")
    names = [name, f"{name}.gz", dotted, f"{dotted}.gz"]
    with _reading(folder):
        files = [folder / candidate for candidate in names if (folder / candidate).is_file()]
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder on this host")
    if not files:
        raise ValueError(f"{folder} has none of {', '.join(names)}")
    return files[0]


def idx_files(folder: Path, part: str) -> tuple[Path, Path]:
    """Return (the file with the images, the file with the labels) of a part, "train" or "t10k", in `folder`.

    The names that `idx_file` accepts are accepted. Raises ValueError if one of the two is missing.
    """
    return idx_file(folder, f"{part}-images-idx3-ubyte"), idx_file(folder, f"{part}-labels-idx1-ubyte")


def idx_header(path: Path, content: bytes, magic: int) -> tuple[int, list[int]]:
    """Return (length of an IDX file's header in bytes, shape of its values, such as [60000, 28, 28]).

    `content` is the beginning of the file, `magic` the expected magic number. Raises ValueError if the header
    is cut or has another magic number.
    """
    dimensions = magic & 0xFF
    length = 4 + 4 * dimensions
    if len(content) < length:
        raise ValueError(f"{path} is {len(content)} bytes long, its header alone needs {length}")
    start, *shape = struct.unpack(f">{1 + dimensions}I", content[:length])
    if start != magic:
        starts = f"{path} starts with {start:#010x}, expected {magic:#010x}"
        raise ValueError(f"{starts}: another kind of file")
    return length, shape


def require_bytes(path: Path, size: int, header: int, shape: Sequence[int]) -> None:
    """Raise ValueError unless an IDX file's `size` is `header` bytes plus one byte for each value of `shape`.

    `path` is only for the error.
    """
    expected = header + math.prod(shape)
    if size != expected:
        wanted = f"expected {expected} for {' x '.join(map(str, shape))}"
        why = "cut short" if size < expected else "something follows the data"
        raise ValueError(f"{path} holds {size} bytes, {wanted}: {why}")


def require_alike(images: tuple[Path, Sequence[int]], labels: tuple[Path, Sequence[int]]) -> None:
    """Raise ValueError unless there are as many images as labels, at least one, of at least 1 x 1 pixel.

    Both arguments are (file, shape), with the shapes [images, rows, columns] and [labels].
    """
    (images_file, shape), (labels_file, (count,)) = images, labels
    if shape[0] != count:
        found = f"{images_file} holds {shape[0]} images and {labels_file} {count} labels"
        raise ValueError(f"{found}; expected one label for each image")
    if 0 in shape:
        dimensions = " x ".join(map(str, shape))
        raise ValueError(f"{images_file} holds no image: {dimensions}, expected at least 1 x 1 x 1")


def require_labels(where: Path, largest: int) -> None:
    """Raise ValueError if `largest`, the largest label in the file or folder `where`, is above 9."""
    if largest > LARGEST_LABEL:
        raise ValueError(f"{where} has the label {largest}, expected 0 to {LARGEST_LABEL}")


def click_paths(folder: Path, part: str) -> list[Path]:
    """Return the files in `folder` whose names begin with `part` ("train" or "test"), sorted by name.

    Raises ValueError if there are none.
    """
    with _reading(folder):
        paths = sorted(path for path in folder.glob(f"{part}*") if path.is_file())
    if not paths:
        expected = "expected files of clicks to train on, train*, and to test with, test*"
        raise ValueError(f"{folder} has no file {part}*; {expected}")
    return paths


def is_compressed(path: Path) -> bool:
    """Return whether a file begins with gzip's two magic bytes; False for an empty file. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


def read_plain(path: Path, most: int = -1) -> bytes:
    """Return the first `most` bytes of a file's content (default: all); fewer if the content is shorter.

    A gzip file's content is the decompressed one. Raises ValueError if the file cannot be read or
    decompressed.
    """
    with _reading(path), gzip.open(path) if is_compressed(path) else path.open("rb") as file:
        return file.read(most)


def click_lines(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file in their order, as lists: one list for each MiB (decompressed) that is read.

    The lines have no line ends and no carriage returns. A last line without a line end counts; an empty file
    yields nothing. Raises ValueError if the file cannot be read, or if a line is longer than 64 KiB.
    """
    rest, number = b"", 0
    with _reading(path), gzip.open(path) if is_compressed(path) else path.open("rb") as file:
        while piece := file.read(_BYTES_READ):
            *lines, rest = (rest + piece).replace(b"\r", b"").split(b"\n")
            number += len(lines)
            if len(rest) > _LONGEST_LINE:
                what = f"{path} line {number + 1} is longer than {_LONGEST_LINE} bytes"
                raise ValueError(f"{what}; expected {_EXPECTED_CLICK}")
            if lines:
                yield lines
    if rest:
        yield [rest]


def describe_click(path: Path, number: int, line: bytes) -> str:
    r"""Return a description of a damaged line: file, line number, number of columns, and its beginning.

    `number` counts the file's lines from 0; the description counts from 1.
    Example: describe_click(Path("train1"), 0, b"1\tx") -> r"train1 line 1 (2 columns): 1\tx"
    """
    start = cut(repr(line[:_SHOWN])[2:-1], _SHOWN)
    return f"{path} line {number + 1} ({counted(line.count(_TAB) + 1, 'column')}): {start}"


def require_few_damaged(where: str, lines: int, damaged: int, examples: Sequence[str]) -> None:
    """Raise ValueError if there are no lines, if more than 0.1% of them are damaged, or if all are.

    `lines` and `damaged` are numbers of lines. `where` names the files, and `examples` describe some damaged
    lines, for the error.
    """
    if not lines:
        raise ValueError(f"{where} has no line; expected lines of {_EXPECTED_CLICK}")
    if damaged > MOST_DAMAGED * lines or damaged == lines:
        found = f"{damaged} of {counted(lines, 'line')} in {where} are damaged"
        expected = f"expected at most {MOST_DAMAGED:.1%}; a line has {_EXPECTED_CLICK}"
        raise ValueError(f"{found}, {expected}. The first: {'; '.join(examples)}")


def _check_first_images(folder: Path) -> None:
    for part in ("train", "t10k"):
        images_file, labels_file = idx_files(folder, part)
        images = _read_beginning(images_file, IMAGES_MAGIC)
        labels = _read_beginning(labels_file, LABELS_MAGIC)
        require_alike((images_file, images.shape), (labels_file, labels.shape))
        require_labels(labels_file, max(labels.values, default=0))


def _read_beginning(path: Path, magic: int) -> _Beginning:
    content = read_plain(path, _BYTES_READ)
    header, shape = idx_header(path, content, magic)
    if len(content) < _BYTES_READ:  # the whole file was read
        require_bytes(path, len(content), header, shape)
    elif not is_compressed(path):
        with _reading(path):
            size = path.stat().st_size
        require_bytes(path, size, header, shape)
    return _Beginning(shape, content[header:])


def _check_first_clicks(folder: Path) -> None:
    for part in ("train", "test"):
        paths = click_paths(folder, part)
        lines, damaged, all_read = 0, 0, len(paths) <= _MOST_FILES
        examples: list[str] = []
        for path in paths[:_MOST_FILES]:
            pieces = click_lines(path)
            piece = next(pieces, [])
            first = piece[:_FIRST_ROWS]
            bad = [number for number, line in enumerate(first) if not _CLICK.fullmatch(line)]
            examples += [
                describe_click(path, number, first[number]) for number in bad[: MOST_NAMED - len(examples)]
            ]
            if 2 * len(bad) > len(first):
                require_few_damaged(f"the beginning of {path}", len(first), len(bad), examples)
            lines, damaged = lines + len(first), damaged + len(bad)
            all_read = all_read and first == piece and next(pieces, None) is None
        if all_read:
            require_few_damaged(f"{folder}/{part}*", lines, damaged, examples)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Return a context that turns errors of reading or decompressing into a ValueError that names `path`."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} cannot be decompressed, expected a whole gzip file: {error}") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


_CHECKS: Mapping[str, Callable[[Path], None]] = {
    IMAGES: _check_first_images,
    CLICKS: _check_first_clicks,
}

"""Reads the global step of a TensorFlow checkpoint without TensorFlow.

The index of a checkpoint is a sorted table of LevelDB: blocks of keys and values, a block that lists these
blocks, and a footer. A key is the name of a variable. Its value says in which data file the variable lies,
and where (tensorflow/core/protobuf/tensor_bundle.proto). The files come from a host, so nothing in them is
trusted.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(rb"(?:.*/)?global_step")
_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48
# An entry of an index has about 100 bytes.
_MOST_OF_INDEX, _LONGEST_NAME = 4_000_000, 4096
# The types of a step in TensorFlow's numbering, and their bytes.
_SIZES = {3: 4, 9: 8}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# The numbers of the fields of an entry.
_TYPE, _SHARD, _OFFSET, _SIZE = 1, 3, 4, 5


def global_step_in(checkpoint: Path) -> int | None:
    """Return the global step in a checkpoint; `checkpoint` is its path without `.index`.

    Return None if a file is missing, damaged or of another format, if the step is negative, or unless exactly
    one variable is called `global_step` or `.../global_step`.
    """
    with suppress(OSError, ValueError, IndexError, OverflowError):
        index = _read(Path(f"{checkpoint}.index"), 0, _MOST_OF_INDEX)
        found = [fields for name, fields in _entries(index) if _NAME.fullmatch(name)]
        if len(found) == 1:
            return _value(checkpoint, found[0])
    return None


def _value(checkpoint: Path, fields: dict[int, int]) -> int | None:
    size = _SIZES.get(fields.get(_TYPE, 0))
    if size is None or fields.get(_SIZE) != size:
        return None
    part = f"{checkpoint.name}.data-{fields.get(_SHARD, 0):05}-of-"
    (file,) = [each for each in checkpoint.parent.iterdir() if each.name.startswith(part)]
    content = _read(file, fields.get(_OFFSET, 0), size)
    step = int.from_bytes(content, "little", signed=True)
    return step if len(content) == size and step >= 0 else None


def _entries(index: bytes) -> Iterator[tuple[bytes, dict[int, int]]]:
    """Yield (name of a variable, {field number: value}) for each entry of the index, in its order.

    The first entry is the header, whose name is empty. Raises ValueError or IndexError if the index is
    damaged.
    """
    footer = index[-_FOOTER:]
    if not footer.endswith(_MAGIC):
        raise ValueError("it is no table")
    _, _, at = _handle(footer, 0)
    offset, size, _ = _handle(footer, at)
    left = len(index)
    for _, handle in _block(index, offset, size):
        begin, length, _ = _handle(handle, 0)
        left -= length + 1  # blocks do not overlap
        if left < 0:
            raise ValueError("its blocks are larger than it is")
        for name, value in _block(index, begin, length):
            yield name, _numbers(value)


def _block(index: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) for each entry of the block of `size` bytes at `offset` of the index.

    Raises ValueError if the block is cut, compressed or damaged. An entry omits the first bytes of its key
    that it shares with the key before it; the yielded key is complete.
    """
    block = index[offset : offset + size]
    if len(block) != size or size < 4 or index[offset + size]:
        raise ValueError("a block is cut or compressed")
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)
    at, key = 0, b""
    while at < end:
        shared, at = _varint(block, at)
        own, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or shared + own > _LONGEST_NAME or at + own + length > end:
            raise ValueError("an entry is cut, or its name is too long")
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


def _numbers(message: bytes) -> dict[int, int]:
    """Return {field number: value} of the varint fields in a message of Protocol Buffers.

    Other fields are skipped; the last value of a repeated field counts. Raises ValueError for an unknown kind
    of field, and IndexError if the message is cut.
    """
    numbers, at = {}, 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            numbers[tag >> 3], at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            at += length
        elif kind in {_FIXED32, _FIXED64}:
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("a field is of an unknown kind")
    return numbers


def _handle(data: bytes, at: int) -> tuple[int, int, int]:
    """Return (offset of a block, size of the block, index of the byte after both numbers).

    The two numbers are read from `data` at index `at`. Raises as `_varint`.
    """
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return offset, size, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (number, index of the byte after it), read from `data` at index `at`.

    Raises ValueError if the number has more than nine bytes, and IndexError if `data` ends within it.
    """
    value = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number is too long")


def _read(file: Path, offset: int, most: int) -> bytes:
    """Return at most `most` bytes of a file from `offset` on; b"" from beyond its end.

    Raises OSError, also for a link; ValueError for what is no regular file, such as a folder or a FIFO.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ValueError("it is no file")
        return os.pread(opened, most, offset)
    finally:
        os.close(opened)

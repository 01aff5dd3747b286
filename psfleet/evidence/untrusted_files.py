"""Reads and writes whole files of a run's folder, even if others made the folder or write into it, too."""

import errno
import json
import os
from pathlib import Path

# A value of JSON takes about 60 bytes of memory. Our files have 15 bytes per value, the densest of them 8.
BYTES_OF_A_VALUE, FEW_VALUES = 8, 10_000
# This suffices for a plan, settings or endings of a thousand tasks, and a manifest of 100,000 files.
MOST_OF_JSON = 16_000_000


def refuse_special(path: Path) -> None:
    """Raise OSError if `path` is neither a file nor a folder, such as a device or a FIFO.

    A reader would read these without end, or wait. A missing path raises nothing.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "neither a file nor a folder", str(path))


def read_bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a JSON file. Raises OSError, also if it is missing or would take too much memory.

    Too much are more than `most` bytes, or more values than usual for the file's size.
    """
    refuse_special(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        what = f"it has {path.stat().st_size:,} bytes, and at most {most:,} are read"
        raise OSError(errno.EFBIG, what, str(path))
    values = sum(map(content.count, (b",", b"[", b"{")))
    if values > FEW_VALUES + len(content) // BYTES_OF_A_VALUE:
        what = f"it has {values:,} values in {len(content):,} bytes, more than are read"
        raise OSError(errno.EFBIG, what, str(path))
    return content


def read_json(path: Path, most: int = MOST_OF_JSON) -> object:
    """Return the parsed content of a JSON file of at most `most` bytes.

    Raises OSError as `read_bytes`, and ValueError if the content is no JSON or nested too deeply.
    """
    try:
        return json.loads(read_bytes(path, most))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_whole(target: Path, content: bytes) -> None:
    """Write or replace a file atomically. Raises OSError, and then nothing is changed.

    A folder may come from a stranger, so no link in it is followed. Several processes may write the same file
    at once: the result is the complete file of one of them.
    """
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    try:
        with new.open("xb") as file:
            file.write(content)
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise

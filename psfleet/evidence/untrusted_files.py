"""Files of a run's folder, read and written whole, whoever made the folder and whoever else writes there."""

import errno
import json
import os
from pathlib import Path

# A value of JSON takes some 60 bytes of memory. In our files each has 15 bytes, in the densest of them 8.
BYTES_OF_A_VALUE, FEW_VALUES = 8, 10_000
# A plan, settings or endings of a thousand tasks; a manifest of a hundred thousand files.
MOST_OF_JSON = 16_000_000
# Sums of a few thousand digits are numbers that Python does not write any more.
MOST_COUNTED = 2**63 - 1


def refuse_special(path: Path) -> None:
    """Raise OSError for what has no end or is waited for, such as a device or a FIFO."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "neither a file nor a folder", str(path))


def read_bytes(path: Path, most: int) -> bytes:
    """Return what a file of JSON holds. Raises OSError, also for more than memory is to be taken for.

    That is more than `most` bytes, or more values than so many bytes can tell of.
    """
    refuse_special(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        told = f"it has {path.stat().st_size:,} bytes, and at most {most:,} are read"
        raise OSError(errno.EFBIG, told, str(path))
    values = sum(map(content.count, (b",", b"[", b"{")))
    if values > FEW_VALUES + len(content) // BYTES_OF_A_VALUE:
        told = f"it has {values:,} values in {len(content):,} bytes, more than are read"
        raise OSError(errno.EFBIG, told, str(path))
    return content


def read_json(path: Path, most: int = MOST_OF_JSON) -> object:
    """Return what a file of JSON holds. Raises OSError, and ValueError saying what is wrong with it."""
    try:
        return json.loads(read_bytes(path, most))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def write_whole(target: Path, content: bytes) -> None:
    """Write a file, or replace what has its name, in one piece. Raises OSError; then nothing was changed.

    A folder may come from a stranger: no link that lies in it is followed. Several processes may write the
    same file at once: each leaves a whole one.
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

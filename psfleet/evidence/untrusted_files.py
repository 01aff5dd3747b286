"""Files of a run's folder, read and written whole, whoever made the folder and whoever else writes there."""

import errno
import json
import os
from pathlib import Path


def refuse_special(path: Path) -> None:
    """Raise OSError for what has no end or is waited for, such as a device or a FIFO."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "neither a file nor a folder", str(path))


def read_json(path: Path) -> object:
    """Return what a file of JSON holds. Raises OSError, and ValueError saying what is wrong with it."""
    refuse_special(path)
    try:
        return json.loads(path.read_bytes())
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

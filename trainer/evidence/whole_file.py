"""Files of a run's folder, written in one piece, whoever made the folder and whoever else writes there."""

from __future__ import annotations

import os
from pathlib import Path


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

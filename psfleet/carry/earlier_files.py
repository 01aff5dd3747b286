"""Puts files into a run's folder, and loses nothing that an earlier collection had put there.

A file that grew, such as a log, is replaced. If a file of the same name has other content, such as the
records of a task whose host was replaced, the old file is an earlier life of it. It is kept as
earlier/<number>/<name>; the oldest has number 1.
"""

import os
import re
import shutil
from pathlib import Path

EARLIER = "earlier"
# With this file TensorFlow finds the newest checkpoint of a folder. It contains only names of checkpoints.
CHECKPOINT_STATE, MOST_OF_A_STATE = "checkpoint", 1024 * 1024
_STATE_BEGINS = b"model_checkpoint_path: "
_NUMBER = re.compile(r"[1-9][0-9]{0,4}")
_PIECE = 1 << 20


def put(fresh: Path, folder: Path, name: str) -> None:
    """Move the file `fresh` to `folder`/`name`, where `folder` is a run's. Raises OSError.

    An old file there is replaced if `fresh` begins with its content; otherwise it is kept in `folder` as
    earlier/<number>/<name>, the first free number. So is a folder with files at this place, and a file where
    the place needs a folder.
    """
    place = folder / name
    for above in reversed(place.relative_to(folder).parents):
        if (folder / above).is_file():
            _keep(folder, above.as_posix())
    if place.is_dir() and not any(files for _, _, files in os.walk(place)):
        shutil.rmtree(place)
    if place.is_dir() or (place.is_file() and not _continues(fresh, place)):
        _keep(folder, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh.replace(place)


def lives(folder: Path, name: str) -> list[Path]:
    """Return the paths of everything that was collected under `name` in a run's folder, the oldest first.

    They are earlier/1/<name>, earlier/2/<name> and so on, if they exist, and last `folder`/`name`, which need
    not exist. The folder may come from a stranger, so no link to earlier files is followed.
    """
    above = folder / EARLIER
    entries = above.iterdir() if above.is_dir() and not above.is_symlink() else ()
    numbered = [entry for entry in entries if _NUMBER.fullmatch(entry.name) and not entry.is_symlink()]
    earlier = [entry / name for entry in sorted(numbered, key=lambda entry: int(entry.name))]
    return [*(path for path in earlier if path.exists()), folder / name]


def _keep(folder: Path, name: str) -> None:
    number = 1
    while True:
        kept = folder / EARLIER / f"{number}" / name
        number += 1
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        if not kept.exists():
            (folder / name).rename(kept)
            return


def _continues(fresh: Path, old: Path) -> bool:
    """Return whether the file `fresh` begins with the content of the file `old`.

    Zeros at the end of the old file count as content that could not be read when it was collected. Return
    True also if the old file is TensorFlow's file `checkpoint`, which names the newest checkpoint.
    """
    with fresh.open("rb") as new, old.open("rb") as before:
        is_state = old.name == CHECKPOINT_STATE and old.stat().st_size <= MOST_OF_A_STATE
        if is_state and before.read(len(_STATE_BEGINS)) == _STATE_BEGINS:
            return True
        before.seek(0)
        while piece := before.read(_PIECE):
            now = new.read(len(piece))
            if now != piece:
                length = len(piece.rstrip(b"\0"))
                return now[:length] == piece[:length] and not any(
                    rest.strip(b"\0") for rest in iter(lambda: before.read(_PIECE), b"")
                )
        return True

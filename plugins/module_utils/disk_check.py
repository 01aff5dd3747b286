"""Whether a host has the disk that a deployment and its runs need, as a check of doctor.yml."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ansible.module_utils.check import Check
from ansible.module_utils.disk_space import existing_parent, lacking_space, login_home, readable

# Records, logs and checkpoints of small models; in a tenth of it not even the records of a run have room.
BYTES_OF_RUNS = 1_000_000_000
FEWEST_BYTES_OF_RUNS = BYTES_OF_RUNS // 10


def disk_check(
    install: Path, run_directories: Sequence[Path], archive_bytes: int, environment_bytes: int
) -> Check:
    """Return the check `disk`.

    `archive_bytes` and `environment_bytes` are what a deployment would carry and install, 0 for nothing.
    `run_directories` are where runs write.
    """
    carried = {login_home(): archive_bytes} if archive_bytes else {}
    installed = {install: archive_bytes + environment_bytes} if environment_bytes else {}
    lacking = lacking_space(
        _together(carried, installed, dict.fromkeys(run_directories, FEWEST_BYTES_OF_RUNS))
    )
    if lacking:
        return Check(
            "disk",
            "failed",
            lacking,
            f"free some: old environments ({install}/environments) and old runs "
            f"({', '.join(str(path) for path in run_directories)}) stay until somebody removes them",
        )
    scarce = lacking_space(dict.fromkeys(run_directories, BYTES_OF_RUNS))
    if scarce:
        return Check(
            "disk",
            "warning",
            f"{scarce} by the checkpoints of all but small models",
            "remove old runs there, or give trainer_state_directory a larger file system",
        )
    places: dict[int, Path] = {}
    for path in map(existing_parent, (install, *run_directories)):
        places.setdefault(path.stat().st_dev, path)
    free = {path: shutil.disk_usage(path).free for path in places.values()}
    return Check("disk", "ok", ", ".join(f"{path} has {readable(size)} free" for path, size in free.items()))


def _together(*needs: dict[Path, int]) -> dict[Path, int]:
    """Add up what is needed in the same directory."""
    together: dict[Path, int] = {}
    for need in needs:
        for path, size in need.items():
            together[path] = together.get(path, 0) + size
    return together

"""The host check `disk`: whether a host has enough disk space for a deployment and its runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ..disk_space import existing_parent, lacking_space, login_home
from ..host.check import Finding, failed, ok, warning
from ..host.wording import readable

# Enough for records, logs and checkpoints of small models; a tenth of it does not even suffice for records.
BYTES_OF_RUNS = 1_000_000_000
FEWEST_BYTES_OF_RUNS = BYTES_OF_RUNS // 10


def disk_finding(
    install: Path, run_directories: Sequence[Path], archive_bytes: int, environment_bytes: int
) -> Finding:
    """Return the finding of the check `disk`: whether the file systems have enough free space.

    A deployment would copy `archive_bytes` to the login user's home and to the folder `install`, and install
    `environment_bytes` there; both are 0 if it carries nothing. The finding is failed if these bytes do not
    fit, or if a folder of `run_directories` has less than 0.1 GB; a warning below 1 GB there; else ok.
    """
    lacking = lacking_space(
        (login_home(), archive_bytes),
        (install, archive_bytes + environment_bytes),
        *((path, FEWEST_BYTES_OF_RUNS) for path in run_directories),
    )
    if lacking:
        return failed(
            lacking,
            f"free some: old environments ({install}/environments) and old runs "
            f"({', '.join(str(path) for path in run_directories)}) stay until somebody removes them",
        )
    scarce = lacking_space(*((path, BYTES_OF_RUNS) for path in run_directories))
    if scarce:
        return warning(
            f"{scarce} by the checkpoints of all but small models",
            "remove old runs there, or give trainer_state_directory a larger file system",
        )
    places: dict[int, Path] = {}
    for path in map(existing_parent, (install, *run_directories)):
        places.setdefault(path.stat().st_dev, path)
    free = {path: shutil.disk_usage(path).free for path in places.values()}
    return ok(", ".join(f"{path} has {readable(size)} free" for path, size in free.items()))

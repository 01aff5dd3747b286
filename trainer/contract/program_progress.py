"""What a program's launcher and `psfleet_records` in the program share: the lead, and `progress.json`."""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .json_files import read_object, write_json
from .task_names import lead_of

SECONDS_BETWEEN_REPORTS = 0.5

# How long to wait for the lock: if a program hangs while it holds the lock, the launcher must not hang, too.
_SECONDS_TO_LOCK = 1.0


def cluster_of(tf_config: str) -> dict[str, list[str]]:
    """Return {job: list of addresses} from the value of TF_CONFIG.

    Raises ValueError if the value is no JSON, or has no `cluster` of this form.
    """
    try:
        cluster = json.loads(tf_config)["cluster"]
        return {str(job): [str(address) for address in addresses] for job, addresses in cluster.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        expected = '{"cluster": {..}, "task": {..}}'
        raise ValueError(f"TF_CONFIG is {tf_config!r}, expected {expected}") from error


def lead_task(cluster: Mapping[str, object]) -> str:
    """Return the name of the lead: "chief0" if the cluster has a chief, else "worker0".

    `cluster` is {job: addresses}; a chief without addresses does not count.
    """
    return lead_of({f"{job}0" for job, addresses in cluster.items() if addresses})


def update_progress(run_directory: Path, changes: Mapping[str, object]) -> None:
    """Set the fields `changes` of `progress.json`, and its time `wall`; the other fields stay.

    Fields that the file lacks (all if it is missing or damaged) get defaults. Raises OSError. The launcher
    and its program both call this; a lock, awaited for at most 1 s, keeps both changes.
    """
    path = run_directory / "progress.json"
    with _locked(run_directory / ".progress.lock"):
        write_json(path, {**_EMPTY, **read_object(path), **changes, "wall": round(time.time(), 3)})


_EMPTY: Mapping[str, object] = {
    "run_id": "",
    "phase": "waiting",
    "global_step": 0,
    "last_step": 0,
    "loss": None,
    "contributions": [],
    "missing": [],
    "reason": "",
}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + _SECONDS_TO_LOCK
    with path.open("a", encoding="utf-8") as stream:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield

"""Which playbook acts on a host: one at a time, by a lease that ends by itself where nobody renews it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .task_traces import object_in

# Nothing of it outlives a reboot.
FILE = Path("/run/psfleet.lease")
SECONDS = 90.0
# What whoever renews one hears of it that was taken by somebody else since, or went with a reboot.
LOST = "it is another's by now"
_MOST_BYTES = 4096
_LOOK_SECONDS = 0.1


def seconds_up() -> float:
    """Return how long this host has been up, asleep or not: nobody sets this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Lease:
    """The last lease: the `turn`-th since this host was booted. `token` is "" once it was given back."""

    turn: int = 0  # of one that is to be taken: -1 for any
    token: str = ""
    holder: str = ""
    began: float = 0.0
    ends: float = 0.0

    def hinders(self, token: str, now: float) -> str:
        """Return what keeps the holder of another token from acting, in words; empty for nothing."""
        if not self.token or self.token == token or now >= self.ends:
            return ""
        return (
            f"{self.holder} has held it for {now - self.began:.0f} s, and does so for another "
            f"{self.ends - now:.0f} s, or as long as it goes on"
        )


def read(file: Path) -> Lease:
    """Return the last lease of this host, one without a holder where there is none."""
    try:
        with _opened(file, os.O_RDONLY) as descriptor:
            return _lease_of(descriptor)
    except OSError:
        return Lease()


def take(file: Path, mine: Lease, patience: float) -> str:
    """Take the lease, and return ""; or what keeps it from being taken, once patience (s) has run out.

    `mine` has the token, the holder, and the turn that was found when its holder looked at the host.
    """
    begin = seconds_up()
    while True:
        with _opened(file) as descriptor:
            last, now = _lease_of(descriptor), seconds_up()
            problem = last.hinders(mine.token, now)
            if not problem and mine.turn not in (-1, last.turn) and last.token != mine.token:
                return f"{last.holder or 'another playbook'} has acted there since this one looked"
            if not problem:
                _write(descriptor, replace(mine, turn=last.turn + 1, began=now, ends=now + SECONDS))
                return ""
        if seconds_up() - begin >= patience:
            return problem
        time.sleep(_LOOK_SECONDS)


def renew(file: Path, token: str) -> bool:
    """Let a lease that was taken last longer; tell whether it is still that of this token."""
    return _change(file, token, seconds_up() + SECONDS)


def give_back(file: Path, token: str) -> None:
    """End a lease; that of another token stays."""
    _change(file, token, None)


def _change(file: Path, token: str, ends: float | None) -> bool:
    try:
        with _opened(file, os.O_RDWR) as descriptor:
            last = _lease_of(descriptor)
            if last.token != token:
                return False
            _write(
                descriptor, replace(last, token="", ends=0.0) if ends is None else replace(last, ends=ends)
            )
            return True
    except FileNotFoundError:  # of a host that was booted since, or reset: it is not to come back
        return False


def _lease_of(descriptor: int) -> Lease:
    found = object_in(os.pread(descriptor, _MOST_BYTES, 0).decode("utf-8", "replace"))
    try:
        return Lease(**{name: type(value)(found[name]) for name, value in asdict(Lease()).items()})
    except (KeyError, TypeError, ValueError):
        return Lease()


@contextmanager
def _opened(file: Path, mode: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """Open the file, which is root's alone, while nobody else changes it."""
    descriptor = os.open(file, mode | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, lease: Lease) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(lease)).encode(), 0)

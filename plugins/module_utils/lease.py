"""The lease of a host: one playbook at a time may change the host, and a lease that is not renewed ends."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .host.task_traces import object_in

# /run is empty after a reboot, so no lease survives one.
FILE = Path("/run/psfleet.lease")
SECONDS = 90.0
# The answer to a renewal if another playbook has taken the lease since, or a reboot has ended it.
LOST = "another command holds it now"
_MOST_BYTES = 4096
_POLL_SECONDS = 0.1


def seconds_up() -> float:
    """Return the seconds since this host's boot, sleep included; nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Lease:
    """The last lease of this host; the file of the lease has these fields as JSON.

    - `token`: the secret of the command that has it, "" after it was given back. `holder`: who it is, in
      words.
    - `began`, `ends`, `made`, `acted`: times as `seconds_up` returns them.
    """

    token: str = ""
    holder: str = ""
    began: float = 0.0
    ends: float = 0.0
    made: float = 0.0  # when the file was made; a reset removes it
    acted: float = 0.0  # when the last holder that may have changed the host lost the lease

    def hindrance(self, token: str, now: float) -> str:
        """Return, in words, why the command with `token` must not act at the time `now`; "" if it may act.

        It may act if the lease has its token, was given back, or has ended.
        """
        if not self.token or self.token == token or now >= self.ends:
            return ""
        return (
            f"{self.holder} has held it for {now - self.began:.0f} s, and keeps it for another "
            f"{self.ends - now:.0f} s, or until it ends"
        )

    def change_since(self, token: str, seen_at: float, now: float) -> str:
        """Return, in words, who may have changed the host between `seen_at` and `now`; "" if nobody has.

        Times are as `seconds_up` returns them. Changes by the command with `token` do not count. A `seen_at`
        below 0 means that this command did not read the host's state: then the result is "".
        """
        if seen_at < 0 or self.token == token:
            return ""
        if self.acted <= seen_at <= now and not 0 < seen_at < self.made:
            return ""
        who = self.holder or "another playbook, or a reboot,"
        return f"{who} has changed the host since this command looked at it: try again"


def time_of_reading(file: Path, patience: float = 0.0, *, deployed: bool) -> float:
    """Return the time of `seconds_up`, for a caller that now reads the host's state; 0 without a lease file.

    If another command has the lease, first wait up to `patience` seconds for its end, because it may still
    change the state. If anything is `deployed` on the host, make a missing file; if the file is gone later,
    there was a reset or a reboot.
    """
    end = seconds_up() + patience
    while read(file).hindrance("", seconds_up()) and seconds_up() < end:
        time.sleep(_POLL_SECONDS)
    if deployed and read(file) == Lease():
        with _opened(file) as descriptor:
            if _lease_of(descriptor) == Lease():
                _write(descriptor, Lease(made=seconds_up()))
    return 0.0 if read(file) == Lease() else seconds_up()


def read(file: Path) -> Lease:
    """Return the last lease of this host, also one that has ended; Lease() if there is no valid file."""
    try:
        with _opened(file, os.O_RDONLY) as descriptor:
            return _lease_of(descriptor)
    except OSError:
        return Lease()


def take(file: Path, mine: Lease, patience: float, seen_at: float = -1) -> str:
    """Take the lease and return ""; if another command keeps it for `patience` seconds, return why, in words.

    `mine` has the token and the holder. `seen_at` is when the holder read the host's state, as
    `time_of_reading` returned it, -1 for never. If the state may have changed since, the lease is not taken,
    and the result says who may have changed it.
    """
    begin = seconds_up()
    while True:
        with _opened(file) as descriptor:
            last, now = _lease_of(descriptor), seconds_up()
            last = replace(last, made=last.made or now)
            if last.token == mine.token or (last.token and now >= last.ends):
                last = replace(last, acted=min(last.ends, now))
            problem = last.hindrance(mine.token, now)
            if not problem:
                if outdated := last.change_since(mine.token, seen_at, now):
                    return outdated
                mine = replace(mine, began=now, ends=now + SECONDS, made=last.made, acted=last.acted)
                _write(descriptor, mine)
                return ""
        if seconds_up() - begin >= patience:
            return problem
        time.sleep(_POLL_SECONDS)


def renew(file: Path, token: str) -> bool:
    """Extend the lease to SECONDS from now; return False, and change nothing, if it has another token.

    A lease that has ended, but that nobody has taken since, is extended, too. A missing file has no token.
    """
    return _change(file, token, lambda last, now: replace(last, ends=now + SECONDS))


def give_back(file: Path, token: str) -> None:
    """End the lease if it has this token; the host counts as changed until now.

    So another command that read the host's state earlier cannot take the lease (`take`).
    """
    _change(file, token, lambda last, now: replace(last, token="", ends=0.0, acted=now))


def undo(file: Path, token: str) -> None:
    """End the lease if it has this token, as if it had never been taken: nothing was changed under it."""
    _change(file, token, lambda last, _: replace(last, token="", holder="", ends=0.0))


def _change(file: Path, token: str, change: Callable[[Lease, float], Lease]) -> bool:
    try:
        with _opened(file, os.O_RDWR) as descriptor:
            last = _lease_of(descriptor)
            if last.token != token:
                return False
            _write(descriptor, change(last, seconds_up()))
            return True
    except FileNotFoundError:  # after a reboot or a reset the lease must not come back
        return False


def _lease_of(descriptor: int) -> Lease:
    found = object_in(os.pread(descriptor, _MOST_BYTES, 0).decode("utf-8", "replace"))
    try:
        return Lease(**{name: type(value)(found[name]) for name, value in asdict(Lease()).items()})
    except (KeyError, TypeError, ValueError):
        return Lease()


@contextmanager
def _opened(file: Path, mode: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """Yield a descriptor of the file, which only root may use, and lock the file during the block."""
    descriptor = os.open(file, mode | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, lease: Lease) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(lease)).encode(), 0)

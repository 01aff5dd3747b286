"""Which playbook acts on a host: one at a time, by a lease that ends by itself where nobody renews it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
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
    """The last lease of this host. `token` is "" once it was given back. Moments are of `seconds_up`."""

    token: str = ""
    holder: str = ""
    began: float = 0.0
    ends: float = 0.0
    made: float = 0.0  # the file: a reset removes it
    acted: float = 0.0  # until when anybody had it who may have changed the host

    def hinders(self, token: str, now: float) -> str:
        """Return what keeps the holder of another token from acting, in words; empty for nothing."""
        if not self.token or self.token == token or now >= self.ends:
            return ""
        return (
            f"{self.holder} has held it for {now - self.began:.0f} s, and does so for another "
            f"{self.ends - now:.0f} s, or as long as it goes on"
        )

    def outdates(self, token: str, looked: float, now: float) -> str:
        """Return why what was seen at a moment need not be so any more, in words; empty where it is."""
        if looked < 0 or self.token == token:
            return ""
        if self.acted <= looked <= now and not 0 < looked < self.made:
            return ""
        who = self.holder or "another playbook, or a reboot,"
        return f"{who} has acted there since this one looked: try again"


def look(file: Path, patience: float = 0.0, *, deployed: bool) -> float:
    """Return the moment of a look at this host, 0 where nobody had a lease since it was booted or reset.

    Whoever has one is waited for, as long as patience (s) lasts: what is seen before it ends does not count.
    Where something is `deployed`, there is a file from then on: that a reset removes it is seen.
    """
    end = seconds_up() + patience
    while read(file).hinders("", seconds_up()) and seconds_up() < end:
        time.sleep(_LOOK_SECONDS)
    if deployed and read(file) == Lease():
        with _opened(file) as descriptor:
            if _lease_of(descriptor) == Lease():
                _write(descriptor, Lease(made=seconds_up()))
    return 0.0 if read(file) == Lease() else seconds_up()


def read(file: Path) -> Lease:
    """Return the last lease of this host, one without a holder where there is none."""
    try:
        with _opened(file, os.O_RDONLY) as descriptor:
            return _lease_of(descriptor)
    except OSError:
        return Lease()


def take(file: Path, mine: Lease, patience: float, looked: float = -1) -> str:
    """Take the lease, and return ""; or what keeps it from being taken, once patience (s) has run out.

    `mine` has the token and the holder, who `looked` at the host at that moment; -1 for whoever did not.
    """
    begin = seconds_up()
    while True:
        with _opened(file) as descriptor:
            last, now = _lease_of(descriptor), seconds_up()
            last = replace(last, made=last.made or now)
            if last.token == mine.token or (last.token and now >= last.ends):
                last = replace(last, acted=min(last.ends, now))
            problem = last.hinders(mine.token, now)
            if not problem:
                if outdated := last.outdates(mine.token, looked, now):
                    return outdated
                mine = replace(mine, began=now, ends=now + SECONDS, made=last.made, acted=last.acted)
                _write(descriptor, mine)
                return ""
        if seconds_up() - begin >= patience:
            return problem
        time.sleep(_LOOK_SECONDS)


def renew(file: Path, token: str) -> bool:
    """Let a lease that was taken last longer; tell whether it is still that of this token."""
    return _change(file, token, lambda last, now: replace(last, ends=now + SECONDS))


def give_back(file: Path, token: str) -> None:
    """End a lease; that of another token stays."""
    _change(file, token, lambda last, now: replace(last, token="", ends=0.0, acted=now))


def undo(file: Path, token: str) -> None:
    """End a lease under which nothing was changed; that of another token stays."""
    _change(file, token, lambda last, _: replace(last, token="", holder="", ends=0.0))


def _change(file: Path, token: str, change: Callable[[Lease, float], Lease]) -> bool:
    try:
        with _opened(file, os.O_RDWR) as descriptor:
            last = _lease_of(descriptor)
            if last.token != token:
                return False
            _write(descriptor, change(last, seconds_up()))
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

"""Ends everything that an account runs on this host, or has scheduled to run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .facts.host_facts import run_program

# The folders with a file of cron for each account, and with a file for each job of `at`: of Debian, Red Hat,
# SUSE.
CRONTABS = ("var/spool/cron/crontabs", "var/spool/cron", "var/spool/cron/tabs")
JOBS = ("var/spool/cron/atjobs", "var/spool/at", "var/spool/atjobs")
LINGER = "var/lib/systemd/linger"
# How many times to look for remaining processes, and the seconds between two looks.
TRIES, SECONDS_BETWEEN = 200, 0.05
SECONDS_TO_ANSWER = 10


class Process(NamedTuple):
    """A process with an account's uid.

    `is_contained` is True if it runs in a container, where the uid belongs to another account.
    """

    pid: int
    name: str
    is_contained: bool


def end_all(name: str, user: int, root: Path = Path("/")) -> list[str]:
    """Kill all processes of an account, and remove the files that would start processes of it again.

    Return what was ended, each once: the paths of removed files, and texts such as "process 812 (python3)".
    `user` is the account's uid. Raises ValueError if it is 0 (root), or if a process does not end.
    """
    if not user:
        raise ValueError(f"{name} has the user id of root, and processes of root are not ended")
    ended: dict[str, None] = {}
    for _ in range(TRIES):
        processes = list(processes_of(user))
        own = [process for process in processes if not process.is_contained]
        running = in_words(own)
        # Kill even if no process was seen: one that starts another and ends may always escape notice.
        kill_all(own, user, at_once=len(own) == len(processes))
        # Repeat until neither is found: processes may schedule again, and schedules start processes.
        starts = list(remove_schedules(name, user, root))
        ended |= dict.fromkeys([*starts, *running])
        if not (starts or running):
            forget_manager(user)
            return [*ended]
        time.sleep(SECONDS_BETWEEN)
    raise ValueError(f"processes of {name} do not end: {', '.join([*starts, *running])}")


def in_words(processes: Iterable[Process]) -> list[str]:
    """Return a text such as "process 812 (python3)" for each process that is not in a container."""
    return [f"process {each.pid} ({each.name})" for each in processes if not each.is_contained]


def remove_schedules(name: str, user: int, root: Path) -> Iterator[str]:
    """Remove the account's cron and `at` jobs, and its lingering; yield the path of each removed file.

    Missing files are no error. These folders belong to root, or to the programs that use them, so no account
    can place a link in their paths.
    """
    files = [root / folder / name for folder in (*CRONTABS, LINGER)]
    for folder in JOBS:
        with suppress(OSError):
            files += [path for path in (root / folder).iterdir() if path.lstat().st_uid == user]
    for file in files:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            file.unlink()
            yield str(file)


def forget_manager(user: int) -> None:
    """Make systemd end the manager, the sessions and the runtime folder of an account.

    `user` is the uid of the account, which has no process any more. Failures are ignored.
    """
    for verb in ("stop", "reset-failed"):
        run_program(["systemctl", verb, f"user@{user}.service", f"user-{user}.slice"], SECONDS_TO_ANSWER)


def processes_of(user: int) -> Iterator[Process]:
    """Yield each process that has the uid `user` as any of its four user ids, except dead ones (zombies)."""
    own_map = Path("/proc/self/uid_map").read_bytes()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError):
            text = (folder / "status").read_text(encoding="utf-8", errors="replace")
            fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
            # A process whose first thread has ended looks dead while its other threads live.
            is_dead = fields["State"].startswith("Z") and int(fields["Threads"]) <= 1
            if str(user) in fields["Uid"].split() and not is_dead:
                # Without root's rights, a process enters a namespace of processes only through one of users.
                inner = len(fields["NSpid"].split()) > 1
                is_contained = inner and (folder / "uid_map").read_bytes() == own_map
                yield Process(int(folder.name), fields["Name"], is_contained)


def kill_all(processes: list[Process], user: int, *, at_once: bool) -> None:
    """Kill the `processes` (SIGKILL), without waiting for their end.

    With `at_once`, first kill all processes of `user` by one call of the kernel, also those not in the list.
    """
    if at_once:
        child = os.fork()  # fork starts no program, so it works at the user's limit of processes
        if not child:
            try:
                os.setgroups([])
                os.setresuid(user, user, user)
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

"""What a process uses while a run trains: its CPU time, its waits for a core, and how often it had work.

From these records `psfleet/evidence/time_spent.py` computes where the workers' time went.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock, get_native_id

from trainer.contract.records import RecordWriter

_SECONDS_OF_A_RECORD = 30.0
_THREADS = Path("/proc/self/task")


class ResourceUse:
    """Writes the `resources` records of one process: one for each 30 s from `begin` to `end`.

    The methods may be called by several threads.
    """

    def __init__(self, records: RecordWriter) -> None:
        self._records, self._lock = records, Lock()
        self._since: float | None = None

    def begin(self) -> None:
        """Begin to measure; do nothing if measuring has begun already."""
        with self._lock:
            if self._since is None:
                self._start()

    def sample(self) -> None:
        """Look once whether another thread of this process has work; after 30 s also write a record.

        Call this regularly, at moments that do not depend on the process's work. Without `begin`, do nothing.
        """
        with self._lock:
            if self._since is None:
                return
            with suppress(OSError):
                self._active_samples += _has_ready_thread()
                self._samples += 1
            if time.monotonic() - self._since >= _SECONDS_OF_A_RECORD:
                self._write()
                self._start()

    def end(self) -> None:
        """Write what was measured since the last record, and stop; do nothing if nothing is measured."""
        with self._lock:
            if self._since is not None:
                self._write()
            self._since = None

    def _start(self) -> None:
        self._since, self._cpu, self._waits = time.monotonic(), time.process_time(), _waits_for_a_core()
        self._samples = self._active_samples = 0

    def _write(self) -> None:
        waits = _waits_for_a_core()
        fields: dict[str, object] = {
            "seconds": round(time.monotonic() - (self._since or 0.0), 6),
            "cpu_seconds": round(time.process_time() - self._cpu, 6),
            "cores": len(os.sched_getaffinity(0)),
            "samples": self._samples,
            "active_samples": self._active_samples,
        }
        if waits:
            # A thread that has ended is not counted; a thread that began since then began with a wait of 0.
            waited = sum(nanoseconds - self._waits.get(thread, 0) for thread, nanoseconds in waits.items())
            fields["core_wait_seconds"] = round(max(waited, 0) / 1e9, 6)
        self._records.write("resources", fields)


def _waits_for_a_core() -> dict[str, int]:
    """Return {thread id: nanoseconds for which the thread, since its start, was ready but had no core}.

    Return {} if the kernel does not measure this. A thread above a limit of its control group is ready, and
    waits.
    """
    waits: dict[str, int] = {}
    ran = 0
    with suppress(OSError):
        for thread in _THREADS.iterdir():
            with suppress(OSError, ValueError):  # the thread has ended meanwhile
                on_core, waited, _ = map(int, (thread / "schedstat").read_bytes().split())
                waits[thread.name], ran = waited, ran + on_core
    return waits if ran else {}  # a kernel that does not measure waits writes zeros


def _has_ready_thread() -> bool:
    """Return whether a thread of this process, other than the calling thread, runs or is ready to run."""
    own = str(get_native_id())
    return any(_is_ready(thread) for thread in _THREADS.iterdir() if thread.name != own)


def _is_ready(thread: Path) -> bool:
    with suppress(OSError):  # the thread has ended meanwhile
        # The name of the thread, in brackets, may have blanks and brackets itself.
        return (thread / "stat").read_bytes().rpartition(b")")[2].lstrip()[:1] == b"R"
    return False

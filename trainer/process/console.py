"""A task's lines for people, on standard output, which systemd appends to a file such as `worker0.out`."""

import os
import stat
import sys
import threading
import time

_POLL_SECONDS = 5.0
_MEGABYTE = 1_000_000


def say(text: str) -> None:
    """Print a line on standard output at once; ignore OSError, so that a full disk does not stop training."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        return


def keep_within_quota(megabytes: str) -> None:
    """Start a thread that empties the file of standard output when it exceeds `megabytes`.

    It looks every 5 s, and prints a line after emptying. Do nothing if `megabytes` is "", or if standard
    output is not a file. The output of child processes counts, too, because it goes to the same file.
    """
    if megabytes and stat.S_ISREG(os.fstat(1).st_mode):
        threading.Thread(target=_watch_output, args=(int(megabytes) * _MEGABYTE,), daemon=True).start()


def _watch_output(most: int) -> None:
    while True:
        time.sleep(_POLL_SECONDS)
        size = os.fstat(1).st_size
        if size > most:
            os.ftruncate(1, 0)
            say(f"{size:,} bytes of output were cut here: trainer_log_megabytes is {most // _MEGABYTE}.")

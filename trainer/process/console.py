"""What a task says to people: whole lines on standard output, which systemd appends to `worker0.out`."""

import os
import stat
import sys
import threading
import time

_SECONDS_BETWEEN_LOOKS = 5.0
_MEGABYTE = 1_000_000


def say(text: str) -> None:
    """Print one line at once; a reader that went away or a full disk does not stop the training."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        return


def keep_within_quota(megabytes: str) -> None:
    """Empty the file of this process' output, with a line that says so, whenever it is beyond its quota.

    Other output than to a file is left alone, and so is all of it where the quota is "". What programs print
    that this process starts counts, too: they have the same file.
    """
    if megabytes and stat.S_ISREG(os.fstat(1).st_mode):
        threading.Thread(target=_watch_output, args=(int(megabytes) * _MEGABYTE,), daemon=True).start()


def _watch_output(most: int) -> None:
    while True:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        size = os.fstat(1).st_size
        if size > most:
            os.ftruncate(1, 0)
            say(f"{size:,} bytes of output were cut here: trainer_log_megabytes is {most // _MEGABYTE}.")

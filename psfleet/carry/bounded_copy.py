"""Writes a command's output to a file, up to a limit, so that no host can fill the disk or the memory.

It is a process of its own that Ansible's connection starts in place of ssh:

    python bounded_copy.py FILE LIMIT MARKER COMMAND...

A login shell may print something before it runs a command, and after it. So the file begins after the line
that ends with the marker. If this process stopped the command, it prints the reason; else its exit status is
the command's.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

BLOCK_BYTES = 1 << 18
# The most bytes that a login shell may print before the file, such as a banner, and after it.
MOST_BEFORE, MOST_AFTER = 1_000_000, 65_536
# Every link in a cluster is faster than this.
LEAST_BYTES, PATIENCE_SECONDS = 1_000_000, 60.0


def main(arguments: Sequence[str]) -> int:
    """Run COMMAND, copy its output to FILE, and return its exit status; 0 if the copy was stopped.

    `arguments` are FILE, LIMIT (in bytes), MARKER and COMMAND. If the copy was stopped, print the reason and
    kill the command; otherwise print nothing.
    """
    target, limit, marker, *command = arguments
    with (
        open(target, "wb") as file,  # noqa: PTH123 - without pathlib it starts sooner
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=False,  # a password may come through one
        ) as process,
    ):
        try:
            begin = f"{marker}\n".encode()
            why = copy_bounded(process.stdout, file, int(limit), begin) if process.stdout else ""
            status = 0 if why else process.wait(PATIENCE_SECONDS)
        except OSError as error:
            why, status = f"it cannot be written here: {error.strerror}", 0
        except subprocess.TimeoutExpired:
            why, status = f"it did not end within {PATIENCE_SECONDS:.0f} s", 0
        finally:
            process.kill()
    sys.stdout.write(why)
    return status


def copy_bounded(
    source: IO[bytes],
    file: IO[bytes],
    limit: int,
    begin: bytes = b"",
    patience_seconds: float = PATIENCE_SECONDS,
) -> str:
    """Copy at most `limit` bytes that come from `source` after `begin` to the file; return why it stopped.

    Return "" if `source` ended by itself; at most MOST_AFTER bytes beyond the limit are ignored. Otherwise,
    the reason is: no `begin` within MOST_BEFORE bytes or before the end, still more bytes, or fewer than
    LEAST_BYTES within `patience_seconds`. Raises OSError if the file cannot be written.
    """
    received = goal = 0
    before = None if begin == b"" else b""
    while True:
        if received >= goal:
            goal, deadline = received + LEAST_BYTES, time.monotonic() + patience_seconds
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0 or not select.select([source], [], [], remaining_seconds)[0]:
            return f"fewer than {LEAST_BYTES:,} bytes arrived in {patience_seconds:.0f} s"
        block = os.read(source.fileno(), BLOCK_BYTES)
        if not block:
            return "" if before is None else "it ended before the file began"
        if before is not None:
            before, found, block = (before + block).partition(begin)
            if not found and len(before) > MOST_BEFORE:
                return f"the login shell printed more than {MOST_BEFORE:,} bytes before the file began"
            if not found:
                continue
            before = None
        file.write(block[: max(limit - received, 0)])
        received += len(block)
        if received > limit + MOST_AFTER:
            return "more bytes arrived than were requested"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

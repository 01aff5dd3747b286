"""Writes a command's output to a file, up to a limit, so that no host can fill the disk or the memory.

This runs as a process of its own, which Ansible's connection starts in place of ssh: `python bounded_copy.py
FILE LIMIT COMMAND...`. It prints the reason if it stopped the command; otherwise its exit
status is the command's.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

BLOCK_BYTES = 1 << 18
# Every link in a cluster is faster than this.
LEAST_BYTES, PATIENCE_SECONDS = 1_000_000, 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the command, kill it if it has not ended, and return its exit status."""
    target, limit, *command = arguments
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
            why = copy_bounded(process.stdout, file, int(limit)) if process.stdout else ""
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
    source: IO[bytes], file: IO[bytes], limit: int, patience_seconds: float = PATIENCE_SECONDS
) -> str:
    """Copy at most `limit` bytes from `source` to the file.

    Return "" if the source ended within the limit, otherwise the reason why the copy stopped: more bytes, or
    fewer than LEAST_BYTES within `patience_seconds`.
    """
    came = goal = 0
    while True:
        if came >= goal:
            goal, deadline = came + LEAST_BYTES, time.monotonic() + patience_seconds
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            return f"fewer than {LEAST_BYTES:,} bytes arrived in {patience_seconds:.0f} s"
        block = os.read(source.fileno(), BLOCK_BYTES)
        if not block:
            return ""
        file.write(block[: limit - came])
        came += len(block)
        if came > limit:
            return "more bytes arrived than were requested"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

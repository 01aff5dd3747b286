"""Keep in a file what a command prints, up to a limit: a host that sends for ever fills no disk, no memory.

A process of its own, which Ansible's connection starts in place of the command: `python bounded_copy.py FILE
LIMIT COMMAND...`. It prints why it has stopped the command; else its exit status is the command's.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

BLOCK_BYTES = 1 << 18
# Slower than any link that a cluster has.
LEAST_BYTES, PATIENCE_SECONDS = 1_000_000, 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the command, end it with all that it started, and return the exit status."""
    target, limit, *command = arguments
    with (
        open(target, "wb") as file,  # noqa: PTH123 - without pathlib it starts sooner
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=False,  # a password may come through one
            process_group=0,
        ) as process,
    ):
        try:
            why = kept(process.stdout, file, int(limit)) if process.stdout else ""
            status = 0 if why else process.wait(PATIENCE_SECONDS)
        except OSError as error:
            why, status = f"it cannot be written here: {error.strerror}", 0
        except subprocess.TimeoutExpired:
            why, status = f"it did not end for {PATIENCE_SECONDS:.0f} s", 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    sys.stdout.write(why)
    return status


def kept(source: IO[bytes], file: IO[bytes], limit: int, patience_seconds: float = PATIENCE_SECONDS) -> str:
    """Write at most `limit` bytes into the file; return why not all that came is there, "" where it is."""
    came = goal = 0
    while True:
        if came >= goal:
            goal, deadline = came + LEAST_BYTES, time.monotonic() + patience_seconds
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            return f"fewer than {LEAST_BYTES:,} bytes came in {patience_seconds:.0f} s"
        block = os.read(source.fileno(), BLOCK_BYTES)
        if not block:
            return ""
        file.write(block[: limit - came])
        came += len(block)
        if came > limit:
            return "more came than was asked for"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

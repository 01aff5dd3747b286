"""Takes an archive from a neighbour, a host that may still be receiving it itself.

This follows Kascade (Martin, Loup, Buchert, Nussbaum: Scalable and Reliable Data Broadcast with Kascade,
2014).
"""

from __future__ import annotations

import hashlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

BLOCK_BYTES = 1 << 20
# If a neighbour sends no whole part for this long, the host asks the next neighbour.
SILENT_SECONDS = 60
SECONDS_TO_SAY_WHY, MOST_BYTES_SAID = 5, 300
SSH = ("ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")

# A function of a neighbour's name and an offset in bytes. It returns the command that prints the neighbour's
# archive from the offset on.
GiveCommand = Callable[[str, int], list[str]]


class NoNeighbourError(ValueError):
    """No neighbour gave the archive; the message has each neighbour's problem."""


class Archive(NamedTuple):
    """The `size` of an archive in bytes, and `digests`, the SHA-256 of each of its parts, in order.

    Each part has `part_bytes`; only the last one may be shorter.
    """

    size: int
    part_bytes: int
    digests: Sequence[str]

    def parts(self, offset: int) -> Iterator[tuple[int, str]]:
        """Yield (size, SHA-256) of each part from `offset` on; a part must begin at `offset`."""
        for place in range(offset // self.part_bytes, len(self.digests)):
            yield min(self.part_bytes, self.size - place * self.part_bytes), self.digests[place]


def ssh_give_command(login: str, lock_hash: str, size: int) -> GiveCommand:
    """Return a function that makes the command with which root gets an archive from a neighbour by SSH.

    The command prints the archive from a byte offset on, after logging in to the neighbour as the account
    `login`. `lock_hash` is the name of the archive's environment, `size` the archive's bytes.
    """

    def give_command(neighbour: str, offset: int) -> list[str]:
        command = f"give {lock_hash} {size} {offset} {SILENT_SECONDS}"
        return ["runuser", "--user", login, "--", *SSH, neighbour, command]

    return give_command


def take(archive: Archive, path: Path, neighbours: Sequence[str], give_command: GiveCommand) -> None:
    """Write an archive to the new file `path`: from the first neighbour, and the rest from the next ones.

    The next neighbour is asked when one fails. The file only ever contains whole parts with the right hashes.
    Raises NoNeighbourError if the file is not complete after the last neighbour, and OSError.
    """
    problems = []
    with path.open("xb") as file:
        for neighbour in neighbours:
            problem = _take_rest(archive, file, give_command(neighbour, file.tell()))
            if not problem:
                return
            problems.append(f"{neighbour}: {problem}")
    raise NoNeighbourError("; ".join(problems))


def _take_rest(archive: Archive, file: IO[bytes], command: Sequence[str]) -> str:
    """Append the rest of the archive to `file`; return "", or why the archive is not complete."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as giver:
        try:
            for size, digest in archive.parts(file.tell()):
                part = _read(giver.stdout, size)  # type: ignore[arg-type]
                if hashlib.sha256(part).hexdigest() != digest:
                    return "what it sent is damaged, or not part of this archive"
                file.write(part)
                file.flush()
        except TimeoutError as error:
            return str(error)
        except EOFError:
            words = _error_text(giver.stderr)  # type: ignore[arg-type]
            return words or f"it ended after {file.tell()} of {archive.size} bytes"
        finally:
            giver.kill()
    return ""


def _read(stream: IO[bytes], size: int) -> bytearray:
    """Return exactly `size` bytes. Raises EOFError if the stream ends, TimeoutError after SILENT_SECONDS."""
    part, deadline = bytearray(), time.monotonic() + SILENT_SECONDS
    while len(part) < size:
        if not select.select([stream], [], [], max(0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"it sent nothing for {SILENT_SECONDS} s")
        block = os.read(stream.fileno(), min(BLOCK_BYTES, size - len(part)))
        if not block:
            raise EOFError
        part += block
    return part


def _error_text(stream: IO[bytes]) -> str:
    """Return what a program prints to `stream` within 5 s, stripped, at most 300 bytes; "" if nothing."""
    soon = select.select([stream], [], [], SECONDS_TO_SAY_WHY)[0]
    return os.read(stream.fileno(), MOST_BYTES_SAID).decode(errors="replace").strip() if soon else ""

"""An archive that a host takes from a neighbour, which may still receive it itself.

After Kascade (Martin, Loup, Buchert, Nussbaum: Scalable and Reliable Data Broadcast with Kascade, 2014).
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
# A neighbour that gives no whole part for so long is left for the next one.
SILENT_SECONDS = 60
SECONDS_TO_SAY_WHY, MOST_BYTES_SAID = 5, 300
SSH = ("ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")

# A neighbour, and the place in the archive to begin at -> the command whose output is the rest.
Giving = Callable[[str, int], list[str]]


class NoNeighbourError(ValueError):
    """No neighbour gave the archive; says what was wrong with each."""


class Archive(NamedTuple):
    """Its size, and the SHA-256 of each part of it; all are `part_bytes` long but the last."""

    size: int
    part_bytes: int
    digests: Sequence[str]

    def parts(self, offset: int) -> Iterator[tuple[int, str]]:
        """Yield size and SHA-256 of those from `offset` on, at which one begins."""
        for place in range(offset // self.part_bytes, len(self.digests)):
            yield min(self.part_bytes, self.size - place * self.part_bytes), self.digests[place]


def by_login(login: str, lock_hash: str, size: int) -> Giving:
    """Return how root asks a neighbour as the account `login`, which logs in from any host to any other.

    `lock_hash` is that of the environment whose archive it is; the neighbour's sshd runs login_commands.
    """

    def giving(neighbour: str, offset: int) -> list[str]:
        asked = f"give {lock_hash} {size} {offset} {SILENT_SECONDS}"
        return ["runuser", "--user", login, "--", *SSH, neighbour, asked]

    return giving


def take(archive: Archive, path: Path, neighbours: Sequence[str], giving: Giving) -> None:
    """Write an archive from the first neighbour that gives it. What it has holds whole parts that are right.

    Where one fails, the next one gives the rest. Raises NoNeighbourError, OSError.
    """
    problems = []
    with path.open("xb") as file:
        for neighbour in neighbours:
            problem = _take_rest(archive, file, giving(neighbour, file.tell()))
            if not problem:
                return
            problems.append(f"{neighbour}: {problem}")
    raise NoNeighbourError("; ".join(problems))


def _take_rest(archive: Archive, file: IO[bytes], command: Sequence[str]) -> str:
    """Return why it did not come to its end; "" where it did."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe) as giver:
        try:
            for size, digest in archive.parts(file.tell()):
                part = _read(giver.stdout, size)  # type: ignore[arg-type]
                if hashlib.sha256(part).hexdigest() != digest:
                    return "what it gave is damaged, or no part of this archive"
                file.write(part)
                file.flush()
        except TimeoutError as error:
            return str(error)
        except EOFError:
            words = _said(giver.stderr)  # type: ignore[arg-type]
            return words or f"it ended after {file.tell()} of {archive.size} bytes"
        finally:
            giver.kill()
    return ""


def _read(stream: IO[bytes], size: int) -> bytearray:
    """Return exactly so many bytes. Raises EOFError, TimeoutError."""
    part, deadline = bytearray(), time.monotonic() + SILENT_SECONDS
    while len(part) < size:
        if not select.select([stream], [], [], max(0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"it gave no more for {SILENT_SECONDS} s")
        block = os.read(stream.fileno(), min(BLOCK_BYTES, size - len(part)))
        if not block:
            raise EOFError
        part += block
    return part


def _said(stream: IO[bytes]) -> str:
    """Return what a program that has closed its output says of why, if it does so soon."""
    soon = select.select([stream], [], [], SECONDS_TO_SAY_WHY)[0]
    return os.read(stream.fileno(), MOST_BYTES_SAID).decode(errors="replace").strip() if soon else ""

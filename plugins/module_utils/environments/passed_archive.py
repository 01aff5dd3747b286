"""An archive that a host takes from a neighbour, which may still be receiving it itself.

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
# If a neighbour sends no whole part for so long, the host turns to the next one.
SILENT_SECONDS = 60
SECONDS_TO_SAY_WHY, MOST_BYTES_SAID = 5, 300
SSH = ("ssh", "-n", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5")

# Takes a neighbour and an offset; returns the command that prints the archive from this offset on.
Giving = Callable[[str, int], list[str]]


class NoNeighbourError(ValueError):
    """No neighbour gave the archive; the message has each neighbour's problem."""


class Archive(NamedTuple):
    """An archive's size, and the SHA-256 of each part; all parts but the last have `part_bytes`."""

    size: int
    part_bytes: int
    digests: Sequence[str]

    def parts(self, offset: int) -> Iterator[tuple[int, str]]:
        """Yield size and SHA-256 of each part from `offset` on, at which a part must begin."""
        for place in range(offset // self.part_bytes, len(self.digests)):
            yield min(self.part_bytes, self.size - place * self.part_bytes), self.digests[place]


def by_login(login: str, lock_hash: str, size: int) -> Giving:
    """Return the commands by which root gets an archive over SSH, as the account `login`.

    That account can log in from any host to any other. `lock_hash` names the archive's environment. The
    neighbour's sshd runs login_commands.
    """

    def giving(neighbour: str, offset: int) -> list[str]:
        command = f"give {lock_hash} {size} {offset} {SILENT_SECONDS}"
        return ["runuser", "--user", login, "--", *SSH, neighbour, command]

    return giving


def take(archive: Archive, path: Path, neighbours: Sequence[str], giving: Giving) -> None:
    """Write an archive from the first neighbour that gives it; if one fails, the next one gives the rest.

    The file only ever holds whole parts whose hashes are right. Raises NoNeighbourError, OSError.
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
    """Append the rest of the archive; return "" or why it is not complete."""
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
    """Return exactly so many bytes. Raises EOFError, TimeoutError."""
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
    """Return the error of a program that has closed its output, if it prints one soon."""
    soon = select.select([stream], [], [], SECONDS_TO_SAY_WHY)[0]
    return os.read(stream.fileno(), MOST_BYTES_SAID).decode(errors="replace").strip() if soon else ""

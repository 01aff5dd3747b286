"""Damage what hosts say and read it, for as long as was asked: `python -m tests.fuzz [SECONDS]`.

What a reader does not bear is kept in tests/fuzz/found/, where `make test` reads it again from then on.
"""

import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.readers import readers
from tests.fuzz.search import FOUND, Search

# More than any input may take, beside what the process has when it begins.
MOST_BYTES = 1 << 30
ROUNDS, EXAMPLES = 3, 50


def main(arguments: list[str]) -> int:
    """Give each reader its part of the time, several times; return 1 where something was found."""
    seconds = float(arguments[0]) if arguments else 600.0
    with tempfile.TemporaryDirectory() as folder:
        searches = [Search(reader) for reader in readers(Path(folder))]
        limit = _limit_memory()
        part = seconds / ROUNDS / len(searches)
        say(f"{len(searches)} readers, {ROUNDS} times {part:.0f} s each; each input has {limit} MB and 20 s")
        for number in range(ROUNDS * len(searches)):
            search = searches[number % len(searches)]
            before, end = search.tried, time.monotonic() + part
            while time.monotonic() < end:
                search.go_on(random.SystemRandom().getrandbits(32), EXAMPLES)
            found = f", {len(search.found)} found" if search.found else ""
            say(f"  {search.reader.name}: {search.tried - before:,} inputs{found}")
        say("")
        for search in searches:
            say(f"{search.reader.name:36}{search.tried:>10,} inputs  {len(search.found) or 'nothing'} found")
            for fault, content in search.found.items():
                say(f"  {fault}: {kept(search.reader.name, fault, content)}")
    return int(any(search.found for search in searches))


def kept(reader: str, fault: str, content: bytes) -> Path:
    """Keep an input that a reader does not bear for the tests; return its file."""
    file = FOUND / reader / fault.replace(" ", "_")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _limit_memory() -> int:
    """Let this process have no more memory than any input may take; return that in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return MOST_BYTES >> 20


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

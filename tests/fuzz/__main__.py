"""Damage what hosts say and read it, for as long as was asked: `python -m tests.fuzz [SECONDS]`.

What a reader does not bear is kept in tests/fuzz/found/, where `make test` reads it again from then on.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.readers import readers
from tests.fuzz.search import search

EXAMPLES = 50


def main(seconds: float = 600.0) -> int:
    """Give each reader its part of the time; return 1 where something was found."""
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        every = readers(Path(folder))
        for reader in every:
            tried, found, end = 0, dict[str, bytes](), time.monotonic() + seconds / len(every)
            while time.monotonic() < end:
                for fault, content in search(reader, random.SystemRandom().getrandbits(32), EXAMPLES).items():
                    found[fault] = min(found.get(fault, content), content, key=len)
                tried += EXAMPLES
            print(f"{reader.name:36}{tried:>10,} inputs  {len(found) or 'nothing'} found", flush=True)
            for fault, content in found.items():
                reader.found.mkdir(parents=True, exist_ok=True)
                (reader.found / fault.replace(" ", "_")).write_bytes(content)
                print(f"  {fault}: {reader.found}", flush=True)
            faults += len(found)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))

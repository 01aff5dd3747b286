"""Which host takes an archive from which: one from the controller, the others from those before them."""

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.host.disk_space import readable

# What a host does. Who takes it, or has it whole, passes it on.
WAITS, IS_SENT, TAKES, HAS = "waits", "is sent", "takes", "has"
_WORDS = {WAITS: "waiting", TAKES: "taking it from each other and installing it", HAS: "installing it"}
# Fewer parts for a host to be told of; and smaller ones, each of which is passed on when it is whole.
MOST_PARTS, SMALLEST_PART = 512, 1 << 20
# Those that began last, and the first of all, which has most of it.
NEIGHBOURS = 2
POLL_SECONDS = 0.2


class FanOut:
    """The hosts of one archive. What is known of them is in `folder`, for the processes that serve them."""

    def __init__(self, folder: Path, archive: Path) -> None:
        self.archive = archive
        self._file = folder / f"fan-out-{archive.name}.json"
        self._parts_file = folder / f"parts-{archive.name}.json"
        with self._told() as state:
            self.began: float = state.setdefault("began", time.monotonic())

    @contextmanager
    def turn_of(self, host: str, *, has_neighbours: bool = True) -> Iterator[list[str]]:
        """Wait until a host may have the archive, and give its neighbours; none where it is to be sent it.

        One host is sent it at a time, beside those that have no neighbours, and those that none gave it to.
        """
        try:
            if not has_neighbours:
                self.is_sent(host)
            neighbours = self._begun(host) if has_neighbours else []
            if neighbours is None:
                self.parts()  # they are needed later, and nothing else is to be done
            while neighbours is None:
                time.sleep(POLL_SECONDS)
                neighbours = self._begun(host)
            yield neighbours
        finally:
            with self._told() as state:
                state["over"] = state.get("over", 0) + 1
                state["hosts"].pop(host, None)

    def _begun(self, host: str) -> list[str] | None:
        with self._told() as state:
            hosts = state["hosts"]
            holders = [each for each, does in hosts.items() if does in (TAKES, HAS)]
            hosts.pop(host, None)
            hosts[host] = TAKES if holders else WAITS if IS_SENT in hosts.values() else IS_SENT
            if hosts[host] == WAITS:
                return None
            return list(dict.fromkeys([*holders[: -NEIGHBOURS - 1 : -1], *holders[:1]]))

    def is_sent(self, host: str) -> None:
        """Remember that a host is sent the archive, since no neighbour gave it."""
        self._does(host, IS_SENT)

    def has(self, host: str) -> None:
        """Remember that a host has the archive from now on."""
        self._does(host, HAS)

    def _does(self, host: str, what: str) -> None:
        with self._told() as state:
            state["hosts"].pop(host, None)
            state["hosts"][host] = what

    def parts(self) -> Mapping[str, Any]:
        """Return `size`, `part_bytes` and `digests` of the archive; they are computed once."""
        with self._parts_file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not (known := file.read()):
                known = json.dumps(parts_of(self.archive))
                file.write(known)
        found: Mapping[str, Any] = json.loads(known)
        return found

    def progress(self, host: str, sent_bytes: int, interval_seconds: float) -> str:
        """Return a line about all hosts; "" where the process of another one says it.

        `sent_bytes` is what has been sent to this host.
        """
        with self._told() as state:
            doing = [*state["hosts"].values()]
            speaks = state["hosts"][host] == IS_SENT or IS_SENT not in doing
            if not speaks or time.monotonic() - state.get("said", 0) < interval_seconds:
                return ""
            state["said"] = time.monotonic()
        sent = f"{readable(sent_bytes)} of {readable(self.archive.stat().st_size)} sent"
        counts = [f"{doing.count(what)} {words}" for what, words in _WORDS.items() if what in doing]
        done = [f"{state['over']} done"] if "over" in state else []
        return f"{self.archive.name}: {', '.join([*([sent] if IS_SENT in doing else []), *counts, *done])}"

    @contextmanager
    def _told(self) -> Iterator[dict[str, Any]]:
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            state = json.loads(file.read() or '{"hosts": {}}')
            yield state
            file.truncate(0)
            file.write(json.dumps(state))


def parts_of(archive: Path) -> dict[str, Any]:
    """Return the size of an archive, the size of its parts but the last one, and their SHA-256."""
    size = archive.stat().st_size
    part_bytes = max(SMALLEST_PART, -(-size // MOST_PARTS))
    with archive.open("rb") as file:
        digests = [hashlib.sha256(part).hexdigest() for part in iter(lambda: file.read(part_bytes), b"")]
    return {"size": size, "part_bytes": part_bytes, "digests": digests}

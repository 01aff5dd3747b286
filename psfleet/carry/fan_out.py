"""Decides from where each host gets an archive: the first host from the controller, the others from hosts."""

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.host.wording import readable

# The states of a host. A host in state TAKES or HAS passes the archive on.
WAITS, IS_SENT, TAKES, HAS = "waits", "is sent", "takes", "has"
_WORDS = {WAITS: "waiting", TAKES: "taking it from each other and installing it", HAS: "installing it"}
# The most parts of an archive, because hosts get a list of them, and the least bytes of a part. Hosts pass on
# complete parts.
MOST_PARTS, SMALLEST_PART = 512, 1 << 20
# The neighbours of a host are this many of the newest holders, and the oldest, which has most of the archive.
NEIGHBOURS = 2
POLL_SECONDS = 0.2


class FanOut:
    """The hosts that get one `archive`, and the state of each. `began` is when the first process began.

    `began` is in seconds of the monotonic clock. The processes of all hosts share the states, in files in
    `folder`.
    """

    def __init__(self, folder: Path, archive: Path) -> None:
        self.archive = archive
        self._file = folder / f"fan-out-{archive.name}.json"
        self._parts_file = folder / f"parts-{archive.name}.json"
        with self._locked_state() as state:
            self.began: float = state.setdefault("began", time.monotonic())

    @contextmanager
    def turn_of(self, host: str, *, has_neighbours: bool = True) -> Iterator[list[str]]:
        """Wait until a host may have the archive; yield its neighbours, or [] if the controller sends it.

        Neighbours are hosts that pass the archive on: the two newest, then the oldest. The controller sends
        to one host at a time; but if `has_neighbours` is False (none was usable), yield [] at once. At the
        end of the block, the host counts as done.
        """
        try:
            if not has_neighbours:
                self.mark_uploading(host)
            neighbours = self._take_turn(host) if has_neighbours else []
            if neighbours is None:
                self.parts()  # compute them now: they are needed later
            while neighbours is None:
                time.sleep(POLL_SECONDS)
                neighbours = self._take_turn(host)
            yield neighbours
        finally:
            with self._locked_state() as state:
                state["over"] = state.get("over", 0) + 1
                state["hosts"].pop(host, None)

    def _take_turn(self, host: str) -> list[str] | None:
        with self._locked_state() as state:
            hosts = state["hosts"]
            holders = [each for each, does in hosts.items() if does in (TAKES, HAS)]
            hosts.pop(host, None)
            hosts[host] = TAKES if holders else WAITS if IS_SENT in hosts.values() else IS_SENT
            if hosts[host] == WAITS:
                return None
            return list(dict.fromkeys([*holders[: -NEIGHBOURS - 1 : -1], *holders[:1]]))

    def mark_uploading(self, host: str) -> None:
        """Record that the controller sends the archive to a host, because no neighbour could send it."""
        self._set_state(host, IS_SENT)

    def mark_complete(self, host: str) -> None:
        """Record that a host has the whole archive, so that it passes the archive on."""
        self._set_state(host, HAS)

    def _set_state(self, host: str, what: str) -> None:
        with self._locked_state() as state:
            state["hosts"].pop(host, None)
            state["hosts"][host] = what

    def parts(self) -> Mapping[str, Any]:
        """Return {"size", "part_bytes", "digests"} of the archive, as `parts_of` does.

        Only the first call of all processes computes them; the others wait for it, and read its result.
        """
        with self._parts_file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not (known := file.read()):
                known = json.dumps(parts_of(self.archive))
                file.write(known)
        found: Mapping[str, Any] = json.loads(known)
        return found

    def progress(self, host: str, sent_bytes: int, interval_seconds: float) -> str:
        """Return a line about all hosts, or "" if this process is not to report now.

        It is "" if another process reports (the process of a host to which the controller sends), or if the
        last line is less than `interval_seconds` old. `sent_bytes` is the number of bytes sent to `host` by
        the controller.
        """
        with self._locked_state() as state:
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
    def _locked_state(self) -> Iterator[dict[str, Any]]:
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            state = json.loads(file.read() or '{"hosts": {}}')
            yield state
            file.truncate(0)
            file.write(json.dumps(state))


def parts_of(archive: Path) -> dict[str, Any]:
    """Return {"size": bytes, "part_bytes": bytes of a part, "digests": SHA-256 of each part in hex digits}.

    The last part may be smaller. The digests are in the order of the parts; an empty archive has none.
    """
    size = archive.stat().st_size
    part_bytes = max(SMALLEST_PART, -(-size // MOST_PARTS))
    with archive.open("rb") as file:
        digests = [hashlib.sha256(part).hexdigest() for part in iter(lambda: file.read(part_bytes), b"")]
    return {"size": size, "part_bytes": part_bytes, "digests": digests}

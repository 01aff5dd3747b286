"""Which host gets an archive from which neighbours, computed in processes like Ansible's workers."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from psfleet.carry.fan_out import SMALLEST_PART, FanOut, parts_of


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "wheels-0123456789ab.tar"
    path.write_bytes(b"wheels")
    return path


# A process for a host: it prints its neighbours, and executes the commands that it reads, one a line.
HOST = """
import sys
from pathlib import Path
from psfleet.carry.fan_out import FanOut
fan_out, host = FanOut(Path(sys.argv[1]).parent, Path(sys.argv[1])), sys.argv[2]
with fan_out.turn_of(host) as neighbours:
    print(",".join(neighbours), flush=True)
    for line in sys.stdin:
        if line == "fail\\n":
            raise SystemExit(1)
        getattr(fan_out, line.strip())(host)
        print("done", flush=True)
"""


class Host:
    """A host and its started process."""

    def __init__(self, archive: Path, name: str) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", HOST, str(archive), name]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def next_line(self) -> str:
        """Return its next line."""
        assert self.process.stdout
        return self.process.stdout.readline().rstrip("\n")

    def perform(self, word: str) -> None:
        """Let it execute a command, and wait until this is done."""
        assert self.process.stdin
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        self.next_line()

    def end(self) -> None:
        """Let it end, and wait for it."""
        self.process.communicate()


def waiting(archive: Path, number: int) -> None:
    """Return when so many hosts wait."""
    while (archive.parent / f"fan-out-{archive.name}.json").read_text(encoding="utf-8").count(
        "waits"
    ) < number:
        pass


def test_one_host_gets_an_upload_and_the_others_get_the_latest_and_the_first_host_as_neighbours(
    archive: Path,
) -> None:
    first = Host(archive, "node1")
    assert first.next_line() == ""
    second = Host(archive, "node2")
    waiting(archive, 1)
    first.perform("mark_complete")
    assert second.next_line() == "node1"
    others = []
    for name, neighbours in (("node3", "node2,node1"), ("node4", "node3,node2,node1")):
        others.append(Host(archive, name))
        assert others[-1].next_line() == neighbours
    first.end()
    others.append(Host(archive, "node5"))
    assert others[-1].next_line() == "node4,node3,node2"
    for host in (second, *others):
        host.end()


def test_if_the_upload_to_a_host_fails_the_next_host_gets_one(archive: Path) -> None:
    first = Host(archive, "node1")
    assert first.next_line() == ""
    others = [Host(archive, "node2"), Host(archive, "node3")]
    waiting(archive, 2)
    first.perform("fail")
    first.end()
    # Either of the two gets the upload; the other then has it as its neighbour.
    while not any(state in ("is sent",) for state in states(archive).values()):
        pass
    (sent,) = (name for name, does in states(archive).items() if does == "is sent")
    assert sent in ("node2", "node3")
    chosen, other = others if sent == "node2" else others[::-1]
    assert chosen.next_line() == ""
    chosen.perform("mark_complete")
    assert other.next_line() == sent
    for host in others:
        host.end()


def states(archive: Path) -> dict[str, str]:
    """Return the state of each host, from the file that the processes share."""
    with FanOut(archive.parent, archive)._locked_state() as state:
        found: dict[str, str] = dict(state["hosts"])
    return found


def test_hosts_that_no_neighbour_served_and_hosts_without_neighbours_get_uploads_at_once(
    archive: Path,
) -> None:
    fan_out = FanOut(archive.parent, archive)
    first, second = Host(archive, "node1"), None
    assert first.next_line() == ""
    first.perform("mark_complete")
    second = Host(archive, "node2")
    assert second.next_line() == "node1"
    second.perform("mark_uploading")
    with fan_out.turn_of("node3", has_neighbours=False) as neighbours:
        assert neighbours == []
        assert states(archive) == {"node1": "has", "node2": "is sent", "node3": "is sent"}
    first.end()
    second.end()
    assert states(archive) == {}


def test_one_process_reports_the_progress_of_all_hosts(archive: Path) -> None:
    fan_out = FanOut(archive.parent, archive)
    hosts = [Host(archive, "node1"), Host(archive, "node2")]
    waiting(archive, 1)
    (sent,) = (name for name, does in states(archive).items() if does == "is sent")
    (waits,) = (name for name, does in states(archive).items() if does == "waits")
    assert fan_out.progress(waits, 0, 0) == ""
    assert fan_out.progress(sent, 3, 0) == "wheels-0123456789ab.tar: 3 bytes of 6 bytes sent, 1 waiting"
    assert fan_out.progress(sent, 3, 1000) == ""
    chosen, other = hosts if sent == "node1" else hosts[::-1]
    chosen.next_line()
    chosen.perform("mark_complete")
    assert other.next_line() == sent
    told = "1 taking it from each other and installing it, 1 installing it"
    assert fan_out.progress(waits, 0, 0).endswith(f": {told}")
    chosen.end()
    assert fan_out.progress(waits, 0, 0).endswith("1 taking it from each other and installing it, 1 done")
    other.end()


def test_the_hashes_of_the_parts_are_computed_once(archive: Path) -> None:
    content = os.urandom(SMALLEST_PART + 1)
    archive.write_bytes(content)
    parts = [content[:SMALLEST_PART], content[SMALLEST_PART:]]
    expected = {
        "size": len(content),
        "part_bytes": SMALLEST_PART,
        "digests": [hashlib.sha256(part).hexdigest() for part in parts],
    }
    assert parts_of(archive) == expected
    fan_out = FanOut(archive.parent, archive)
    assert fan_out.parts() == expected
    archive.write_bytes(b"other")
    assert FanOut(archive.parent, archive).parts() == expected


def test_an_archive_of_any_size_has_at_most_512_parts(tmp_path: Path) -> None:
    large = tmp_path / "large.tar"
    with large.open("wb") as file:
        file.truncate(600 * SMALLEST_PART)
    found = parts_of(large)
    assert len(found["digests"]) <= 512
    assert found["part_bytes"] * len(found["digests"]) >= found["size"]

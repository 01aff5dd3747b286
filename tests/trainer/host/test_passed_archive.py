"""An archive that is taken from neighbours: programs of this machine, as SSH would start them elsewhere."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from psfleet.carry.fan_out import parts_of
from trainer.host import passed_archive
from trainer.host.passed_archive import GIVE, Archive, NoNeighbourError, take

SIZE = 3_500_000  # four parts, of which the last is smaller
CONTENT = os.urandom(SIZE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def archive(source: Path) -> Archive:
    return Archive(**parts_of(source))


@pytest.fixture(autouse=True)
def _no_patience_for_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_archive, "SECONDS_TO_SAY_WHY", 0.5)


def given(path: Path, installed: str = "/no/such/file", silent: int = 60) -> Callable[[str, int], list[str]]:
    """Return how the program of a neighbour gives a file of this machine."""
    return lambda _, offset: [
        *(sys.executable, "-I", "-S", "-c", GIVE),
        *map(str, (path, installed, SIZE, offset, silent)),
    ]


def by_name(neighbours: Mapping[str, str], path: Path) -> Callable[[str, int], list[str]]:
    """Return how neighbours answer, which have a program for the shell, or "" for that of GIVE."""
    return lambda name, offset: (
        ["sh", "-c", neighbours[name], name, str(path), str(offset)]
        if neighbours[name]
        else given(path)(name, offset)
    )


def test_a_neighbour_gives_its_archive(archive: Archive, source: Path, tmp_path: Path) -> None:
    take(archive, tmp_path / "taken", ["node1"], given(source))
    assert (tmp_path / "taken").read_bytes() == CONTENT


def test_a_neighbour_gives_what_it_still_receives_itself_as_soon_as_it_is_there(
    archive: Archive, tmp_path: Path
) -> None:
    middle, taken = tmp_path / "middle", tmp_path / "taken"
    taking = threading.Thread(target=take, args=(archive, taken, ["node2"], given(middle)))
    taking.start()
    with middle.open("wb") as file:
        for offset in range(0, SIZE, archive.part_bytes):
            file.write(CONTENT[offset : offset + archive.part_bytes])
            file.flush()
            goes_on = True
            while not taken.exists() or taken.stat().st_size < file.tell():
                assert goes_on
                goes_on = taking.is_alive()
    taking.join()
    assert taken.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("echo 'ssh: connect to host node2: Connection refused' >&2; exit 255", "Connection refused"),
        ('tail -c +$(($2 + 1)) "$1" | head -c 1500000', "it ended after 1048576 of 3500000 bytes"),
        ("head -c 1048576 /dev/zero", "what it gave is damaged, or no part of this archive"),
        ("exec >&-; sleep 1000", "it ended after 0 of 3500000 bytes"),
    ],
)
def test_where_a_neighbour_fails_the_next_one_gives_the_rest(
    archive: Archive, source: Path, tmp_path: Path, program: str, why: str
) -> None:
    neighbours = {"node2": program, "node1": ""}
    take(archive, tmp_path / "taken", list(neighbours), by_name(neighbours, source))
    assert (tmp_path / "taken").read_bytes() == CONTENT
    with pytest.raises(NoNeighbourError, match=f"node2: .*{why}"):
        take(archive, tmp_path / "again", ["node2"], by_name(neighbours, source))


def test_one_that_stands_still_is_left_and_no_process_stays(
    archive: Archive, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_archive, "SILENT_SECONDS", 1)
    drips, before = 'while :; do head -c 10 "$1"; sleep 0.01; done', children()
    with pytest.raises(NoNeighbourError, match="node1: it gave no more for 1 s"):
        take(archive, tmp_path / "taken", ["node1"], by_name({"node1": drips}, source))
    assert not (tmp_path / "taken").read_bytes()
    assert children() == before


def children() -> set[str]:
    """Return the processes that this one has started."""
    listed = Path("/proc/self/task").glob("*/children")
    return {child for path in listed for child in path.read_text(encoding="ascii").split()}


def test_what_is_in_the_place_already_is_nothing_to_write_to(archive: Archive, source: Path) -> None:
    with pytest.raises(FileExistsError):
        take(archive, source, ["node1"], given(source))


def test_a_neighbour_that_has_removed_its_archive_says_so_at_once(tmp_path: Path) -> None:
    (tmp_path / "installed").touch()
    command = given(tmp_path / "gone", str(tmp_path / "installed"), silent=1000)("node1", 0)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "it has installed the archive, and keeps it no more\n")


def test_a_neighbour_waits_no_longer_than_it_is_told_for_an_archive_that_never_comes(tmp_path: Path) -> None:
    done = subprocess.run(given(tmp_path / "never", silent=0)("node1", 0), capture_output=True, check=False)
    assert done.stdout == b""

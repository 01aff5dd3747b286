import os
import subprocess
from pathlib import Path

import pytest

from psfleet.watch import followed_log
from psfleet.watch.followed_log import FollowedLog
from tests.psfleet.watch.test_lead_reading import as_root

ALIVE, ENDED = "ActiveState=active\n", "ActiveState=inactive\n"


def ask(log: FollowedLog, state: str = ALIVE) -> list[str]:
    """Run the command in a shell of this host; the state of the unit comes from the test."""
    printed = subprocess.run(["sh", "-c", log.command], capture_output=True, text=True, check=False).stdout
    return log.read(state + printed)


@pytest.fixture
def file(open_folder: Path) -> Path:
    path = open_folder / "worker1.out"
    path.write_text("".join(f"line {number}\n" for number in range(9)))
    return path


def followed(path: Path, lines: int = 3) -> FollowedLog:
    log = FollowedLog(str(path), "psfleet-worker@1.service", "daemon", lines)
    assert ask(log) == []
    return log


@as_root
def test_the_last_lines_come_first_and_then_new_lines(file: Path) -> None:
    log = followed(file)
    assert ask(log) == ["line 6", "line 7", "line 8"]
    assert ask(log) == []
    with file.open("a") as stream:
        stream.write("line 9\nline 10\n\n\nli")
    assert ask(log) == ["line 9", "line 10", "", ""]
    with file.open("a") as stream:
        stream.write("ne 11")
    assert ask(log, ENDED) == ["line 11"]
    assert (log.alive, log.behind) == (False, False)
    with file.open("a") as stream:
        stream.write("\n")
    ended = followed(file, lines=1)
    assert ask(ended, ENDED) == ["line 11"]


@as_root
def test_a_truncated_log_is_shown_from_its_new_beginning(file: Path) -> None:
    log = followed(file, lines=1)
    assert ask(log) == ["line 8"]
    file.write_text("cut here\n")
    assert ask(log) + ask(log) == ["cut here"]


@as_root
def test_a_long_log_comes_in_pieces_without_a_loss(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_log, "MOST_BYTES", 20)
    log = followed(file, lines=100)
    told: list[str] = []
    with file.open("a") as stream:
        stream.writelines(f"line {number}\n" for number in range(9, 30))
    while log.behind:
        told += ask(log)
    assert told[-21:] == [f"line {number}" for number in range(9, 30)]
    assert "line 0" not in told


@as_root
def test_lines_of_a_log_are_made_printable(file: Path) -> None:
    log = followed(file, lines=2)
    file.write_bytes(b"\x1b[2J 10%\r\x1b[31m 20%\r\n\ttwo \xff\x07\n")
    assert ask(log) + ask(log) == [" 20%", " two \ufffd "]


@as_root
@pytest.mark.parametrize("kind", ["absent", "secret", "link"])
def test_a_missing_log_and_one_that_tasks_may_not_read_are_refused(file: Path, kind: str) -> None:
    if kind == "absent":
        file.unlink()
    else:
        file.chmod(0o600)
        os.chown(file, 0, 0)
    if kind == "link":
        file = file.rename(file.with_name("secret"))
        file.with_name("worker1.out").symlink_to(file)
        file = file.with_name("worker1.out")
    log = FollowedLog(str(file), "psfleet-worker@1.service", "daemon", 3)
    if kind == "absent":
        with pytest.raises(ValueError, match="unpack"):
            ask(log)
    else:
        ask(log)
        assert ask(log) == []


NO_ANSWERS = [
    "",
    ALIVE,
    "--psfleet--",
    "--psfleet-- many",
    "--psfleet-- 9 -",
    "--psfleet-- 9 YQ",
    "--psfleet-- 9 é",
]


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_an_invalid_answer_is_refused(answer: str) -> None:
    log = FollowedLog("/log", "psfleet-worker@1.service", "daemon", 3)
    log.read("--psfleet--\n0\n")
    with pytest.raises(ValueError, match=r"."):
        log.read(answer)

"""Data from a host is kept up to a limit of size and time."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from psfleet.carry import bounded_copy

MARKER = "0123456789abcdef"
MARK = f"printf '%s%s\\n' {MARKER[:8]} {MARKER[8:]}"


def copied(target: Path, limit: int, script: str) -> tuple[int, str]:
    """Return the exit status of the program and its message; its memory is smaller than the kept file."""
    program = [
        "prlimit",
        "--as=100000000",
        sys.executable,
        "-IS",
        bounded_copy.__file__,
        str(target),
        str(limit),
        MARKER,
        "bash",
        "-c",
        script,
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout


def ended(process: Path) -> bool:
    with suppress(OSError):
        return ") Z " in (process / "stat").read_text()
    return True


@pytest.mark.parametrize(
    ("script", "status", "kept"),
    [
        ("MARK; printf 12345", 0, "12345"),
        ("MARK; printf 1234567890", 0, "1234567890"),
        ("MARK; printf 123; exit 255", 255, "123"),
        ("echo many >&2; MARK; exit 1", 1, ""),
        ("MARK; cat /nowhere", 1, ""),
        ("echo hello; MARK; printf 1234567890", 0, "1234567890"),
        ("printf hello; exec 2>&1; set -x; MARK; { set +x; } 2>/dev/null; printf 123", 0, "123"),
        ("head -c 900000 /dev/zero; echo; MARK; printf 1234567890", 0, "1234567890"),
        ("trap 'echo bye' EXIT; MARK; printf 1234567890", 0, "1234567890"),
        ("MARK; printf 1234567890; head -c 60000 /dev/zero", 0, "1234567890"),
    ],
)
def test_output_up_to_the_limit_is_kept_with_its_exit_status(
    tmp_path: Path, script: str, status: int, kept: str
) -> None:
    assert copied(tmp_path / "f", 10, script.replace("MARK", MARK)) == (status, "")
    assert (tmp_path / "f").read_text() == kept


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo hello", "it ended before the file began"),
        (f"echo {MARKER[:-1]}; echo {MARKER} there", "it ended before the file began"),
        ("exec yes", "the login shell printed more than 1,000,000 bytes before the file began"),
    ],
)
def test_output_without_a_beginning_is_no_file(tmp_path: Path, script: str, why: str) -> None:
    assert copied(tmp_path / "f", 10, script) == (0, why)
    assert (tmp_path / "f").read_bytes() == b""


def test_a_sender_of_endless_data_is_ended_at_the_limit(tmp_path: Path) -> None:
    limit = 150_000_001
    script = f"echo $$ >{tmp_path}/pid; {MARK}; exec yes"
    assert copied(tmp_path / "f", limit, script) == (0, "more bytes arrived than were requested")
    assert (tmp_path / "f").stat().st_size == limit
    # The sender does not keep running.
    started = Path("/proc") / (tmp_path / "pid").read_text().strip()
    deadline = time.monotonic() + 60
    while not ended(started):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("sent", [b"", b"x" * 1000])
def test_a_sender_that_stops_is_abandoned_after_the_patience(tmp_path: Path, sent: bytes) -> None:
    read, write = os.pipe()
    os.write(write, sent)
    with os.fdopen(read, "rb") as source, (tmp_path / "f").open("wb") as file:
        why = bounded_copy.copy_bounded(source, file, 10_000, patience_seconds=0.3)
    os.close(write)
    assert why == "fewer than 1,000,000 bytes arrived in 0 s"
    assert (tmp_path / "f").read_bytes() == sent


def test_a_sender_of_single_bytes_is_abandoned_after_the_patience(tmp_path: Path) -> None:
    drops = ["sh", "-c", "while printf x; do sleep 0.05; done"]
    with subprocess.Popen(drops, stdout=subprocess.PIPE) as process, (tmp_path / "f").open("wb") as file:
        assert process.stdout is not None
        why = bounded_copy.copy_bounded(process.stdout, file, 10**9, patience_seconds=1.0)
        process.kill()
    assert why.startswith("fewer than")

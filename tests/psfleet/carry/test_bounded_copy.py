"""Data from a host is kept up to a limit of size and time."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from psfleet.carry import bounded_copy


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
        "sh",
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
        ("printf 12345", 0, "12345"),
        ("printf 1234567890", 0, "1234567890"),
        ("printf 123; exit 255", 255, "123"),
        ("echo many >&2; exit 1", 1, ""),
        ("cat /nowhere", 1, ""),
    ],
)
def test_output_up_to_the_limit_is_kept_with_its_exit_status(
    tmp_path: Path, script: str, status: int, kept: str
) -> None:
    assert copied(tmp_path / "f", 10, script) == (status, "")
    assert (tmp_path / "f").read_text() == kept


def test_a_sender_of_endless_data_is_ended_at_the_limit(tmp_path: Path) -> None:
    limit = 150_000_001
    script = f"echo $$ >{tmp_path}/pid; exec yes"
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

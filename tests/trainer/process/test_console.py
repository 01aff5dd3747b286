"""The output of a task, and of its program, does not fill the disk."""

import subprocess
import sys
from pathlib import Path

from tests.trainer.processes import until

PRINTING = """
import subprocess, sys, time
from trainer.process import console
console._SECONDS_BETWEEN_LOOKS = 0.05
console.keep_within_quota(sys.argv[1])
subprocess.run([sys.executable, "-c", "print('x' * 1_500_000)"])
print("the rest", flush=True)
sys.stdin.read()
"""
CUT = "bytes of output were cut here: trainer_log_megabytes is 1.\n"


def printing(log: Path, quota: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        command = [sys.executable, "-c", PRINTING, quota]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT)


def test_a_log_beyond_its_quota_is_emptied_with_a_notice(tmp_path: Path) -> None:
    log = tmp_path / "worker0.out"
    with printing(log, "1") as process:
        until(lambda: CUT in log.read_text(), "a log that is cut")
        process.communicate(b"")
    # Output after the first megabyte may follow the cut.
    assert (process.returncode, log.stat().st_size < 600_000) == (0, True)


def test_a_log_without_a_quota_is_never_cut(tmp_path: Path) -> None:
    log = tmp_path / "worker0.out"
    with printing(log, "") as process:
        until(lambda: "the rest" in log.read_text(), "all of it")
        process.communicate(b"")
    assert log.stat().st_size == 1_500_001 + len("the rest\n")

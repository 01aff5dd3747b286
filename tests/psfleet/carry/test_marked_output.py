"""Only what a command prints counts, whatever the shell prints around it."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from psfleet.carry.marked_output import mark_output, output_between

SHELLS = [shell for shell in ("bash", "sh", "dash", "zsh", "fish", "ksh") if shutil.which(shell)]
NOISE = [
    "",
    "echo hello",
    "printf 'no line end'",
    "echo warning >&2",
    "trap 'echo bye' EXIT",
    "set -x",
    "head -c 300000 /dev/urandom",
    "echo ActiveState=active; echo --psfleet--",
]


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(
    "command", ["echo one; echo two", "printf 'no end'", "true", "false", "cat /proc/self/status"]
)
def test_what_a_login_shell_prints_is_left_out(tmp_path: Path, noise: str, command: str) -> None:
    (tmp_path / "bashrc").write_text(f"exec 2>&1\n{noise}\n")
    marker, whole = mark_output(command)
    done = subprocess.run(
        ["bash", "-c", shlex.join(["/bin/sh", "-c", whole])],
        env={"BASH_ENV": str(tmp_path / "bashrc"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    alone = subprocess.run(["sh", "-c", command], capture_output=True, check=False).stdout
    found = output_between(marker, done.stdout.decode(errors="replace"))
    assert found.splitlines()[:1] == alone.decode().splitlines()[:1]
    assert len(found.splitlines()) >= len(alone.splitlines())


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_prints_the_markers(shell: str) -> None:
    marker, whole = mark_output("echo one")
    assert marker not in whole
    done = subprocess.run([shell, "-c", whole], capture_output=True, text=True, check=True)
    assert output_between(marker, done.stdout) == "one\n"
    assert output_between(marker, done.stdout.replace("\n", "\r\n")) == "one\r\n"


def test_nothing_counts_without_both_markers() -> None:
    assert output_between("MARK", "") == output_between("MARK", "noise") == ""
    assert output_between("MARK", "noiseMARK\nsome") == "some"

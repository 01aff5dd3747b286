""".ci/run with a `make` that follows a script."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.repository import ROOT

MAKE = """#!/bin/sh
echo "made $1"
[ "$1" != test ] || echo "3 passed, 1 failed"
[ "$1" != "$FAILS" ] && [ "$FAILS" != all ] || { echo "make: *** [$1] Error" >&2; exit "$CODE"; }
"""


@pytest.mark.parametrize("fails", ["", "demo", "test", "demo-down", "all"])
def test_the_demo_and_the_tests_share_a_clone_and_the_practice_hosts_are_always_removed(
    fails: str, tmp_path: Path
) -> None:
    (tmp_path / "make").write_text(MAKE)
    (tmp_path / "make").chmod(0o755)
    words = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILS": fails, "CODE": "7", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [ROOT / ".ci/run"], cwd=tmp_path, env=os.environ | words, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if "made" in line] == ["made demo", "made test", "made demo-down"]
    assert lines[-1] == "3 passed, 1 failed"
    assert done.returncode == (7 if fails else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["make"]

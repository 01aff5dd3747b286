import sys
from pathlib import Path

import pytest

from plugins.modules.host_requirements import Host, find_interpreter, found_pythons, inspect_host, works

FINE = Host(
    system="Debian GNU/Linux 12 (bookworm)",
    machine="x86_64",
    interpreter="/usr/bin/python3.11",
    pythons=["Python 3.11"],
    missing_commands=[],
    runs_systemd=True,
)


def test_a_supported_host_has_no_problem() -> None:
    assert FINE.problems("3.11", "x86_64") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"interpreter": None, "pythons": ["Python 3.9"]},
            "Python 3.9; the locked wheels are for Python 3.11",
        ),
        ({"interpreter": None, "pythons": []}, "no Python 3"),
        ({"machine": "aarch64"}, "aarch64; the locked wheels are for x86_64"),
        ({"missing_commands": ["sshd"]}, "lacks the programs sshd"),
        ({"runs_systemd": False}, "systemd"),
    ],
)
def test_what_keeps_a_host_out_is_said(changes: dict[str, object], words: str) -> None:
    host = Host(**{**vars(FINE), **changes})
    problems = host.problems("3.11", "x86_64")
    assert len(problems) == 1
    assert words in problems[0]


def test_the_interpreter_is_found_by_its_version(tmp_path: Path) -> None:
    for name in ("python3.9", "python3.11", "python3.11-config", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert find_interpreter("3.11", str(tmp_path)) == f"{tmp_path}/python3.11"
    assert find_interpreter("3.12", str(tmp_path)) is None
    assert found_pythons(str(tmp_path)) == ["Python 3.11", "Python 3.9"]


def test_an_interpreter_that_lies_about_its_version_does_not_count() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert works(sys.executable, version)
    assert not works(sys.executable, "3.5")


def test_a_missing_program_is_named() -> None:
    assert inspect_host("3.11", ["sh", "no-such-program"]).missing_commands == ["no-such-program"]

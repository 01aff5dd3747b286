import json
import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.action import run_hook
from tests.plugins.steps.module_run import action_of


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(run_hook.display, "warning", told.append)
    return told


def call(command: str, folder: Path, *, state: str = "ended", check_mode: bool = False) -> dict[str, Any]:
    action = action_of(run_hook.ActionModule, check=check_mode)
    run = {"id": "night", "folder": str(folder), "settings": {"secret": "x"}}
    return dict(action._act({"command": command, "run": run, "state": state}))


def python(tmp_path: Path, code: str) -> str:
    script = tmp_path / "a hook.py"
    script.write_text(code)
    return f"{sys.executable} '{script}'"


def test_a_command_is_told_in_one_line_what_the_run_is(tmp_path: Path, warnings: list[str]) -> None:
    (tmp_path / "verdict.json").write_text('{"verdict": "proven"}')
    heard = tmp_path / "heard"
    command = python(tmp_path, f"import sys; open({str(heard)!r}, 'a').write(sys.stdin.read() + sys.argv[1])")
    for state in ("ended", "judged"):
        assert call(f"{command} --night\n", tmp_path, state=state) == {}
    ended, judged = (json.loads(line) for line in heard.read_text().split("--night") if line)
    assert ended == {"run_id": "night", "state": "ended", "folder": str(tmp_path)}
    assert judged == {**ended, "state": "judged", "verdict": "proven"}
    assert warnings == []


def test_nothing_is_called_without_a_command_or_in_check_mode(tmp_path: Path, warnings: list[str]) -> None:
    heard = tmp_path / "heard"
    assert call("", tmp_path) == {"skipped": True}
    call(f"touch {heard}", tmp_path, check_mode=True)
    assert not heard.exists()
    assert warnings == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import sys; sys.exit('no\\x1b[2J such room')", "exit code 1: no [2J such room"),
        ("", "timed out after"),
    ],
)
def test_a_command_that_fails_is_a_warning(
    tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    if not code:
        monkeypatch.setattr(run_hook, "SECONDS", 0.05)
    assert call(python(tmp_path, code or "import time; time.sleep(60)"), tmp_path) == {}
    (warning,) = warnings
    assert problem in warning
    assert "a hook.py" in warning


def test_a_command_that_is_not_there_is_a_warning(tmp_path: Path, warnings: list[str]) -> None:
    call("/no/such/hook", tmp_path)
    assert "No such file" in warnings[0]

"""TensorBoard on this machine: how it is started, what it prints, and the advice if it is missing."""

import sys
from pathlib import Path
from typing import Any

import pytest

from plugins.action.show import ActionModule
from plugins.plugin_utils.pages import tensorboard
from tests.plugins.steps.module_run import action_of

# It replaces TensorBoard, which the tests' environment lacks: it prints its arguments and folders, and ends.
STAND_IN = """#!/bin/sh
echo "said $*" >&2
cd $(echo "$*" | sed 's/.*--logdir=//; s/ .*//') && for run in *; do echo "$run is $(readlink $run)" >&2; done
echo "TensorBoard 2.21.0 at http://127.0.0.1:6007/ (Press CTRL+C to quit)" >&2
exit 3
"""


def acted(cache: Path, *runs: Path, check: bool = False) -> dict[str, Any]:
    action = action_of(ActionModule, check=check)
    arguments = {
        "page": "tensorboard",
        "runs": [str(run) for run in runs],
        "port": 6007,
        "cache_directory": str(cache),
    }
    answer: dict[str, Any] = action._act(arguments)
    return answer


def test_without_tensorboard_the_commands_that_install_the_pinned_one_are_shown(tmp_path: Path) -> None:
    message = acted(tmp_path)["msg"]
    assert f"\n  {sys.executable} -m venv {tmp_path}/tensorboard\n" in message
    assert f"\n  {tmp_path}/tensorboard/bin/pip install --require-hashes -r " in message
    lock = Path(message.partition(" -r ")[2].split()[0])
    assert "tensorboard==" in lock.read_text()


def test_tensorboard_reads_the_folders_of_the_runs_and_its_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(tensorboard.display, "display", shown.append)
    python = tmp_path / "cache" / "tensorboard" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN)
    python.chmod(0o755)
    runs = [tmp_path / "runs" / name for name in ("one", "two")]
    for run in runs:
        run.mkdir(parents=True)
    assert acted(tmp_path / "cache", *runs, check=True) == {}
    message = acted(tmp_path / "cache", *runs)["msg"]
    assert message.startswith(
        "TensorBoard has ended, exit code 3\nsaid -m tensorboard.main --host=127.0.0.1 --port=6007"
    )
    assert f"one is {runs[0]}\ntwo is {runs[1]}\n" in message
    assert shown == ["TensorBoard 2.21.0 at http://127.0.0.1:6007/ (Ctrl-C to quit)"]
    # A later call shows only the requested run, and has not changed the runs.
    (runs[0] / "kept").touch()
    message = acted(tmp_path / "cache", runs[1])["msg"]
    assert f"two is {runs[1]}" in message
    assert "one is" not in message
    assert (runs[0] / "kept").exists()

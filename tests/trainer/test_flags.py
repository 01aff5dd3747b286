"""The command line: the tutorials' four flags, every problem at once, and a help that lists all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.processes import ROOT
from trainer import flags
from trainer.exit_codes import USAGE
from trainer.settings import RULES

TUTORIAL = (
    "--ps_hosts=10.0.0.1:2222 --worker_hosts=10.0.0.1:2223,[fe80::1]:2222 --job_name=worker --task_index=1"
)


def test_the_command_line_of_the_tutorials() -> None:
    options = flags.parse(TUTORIAL.split())
    assert options.cluster.task == "worker1"
    assert options.cluster.jobs == {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "[fe80::1]:2222"]}
    assert not options.cluster.is_chief
    assert options.settings.model == "mnist_mlp"
    assert options.run_directory is None


def test_training_flags_are_settings() -> None:
    options = flags.parse([*TUTORIAL.split(), "--steps", "7", "--learning_rate=1e-3", "--run_directory=/r"])
    assert options.settings.steps == 7
    assert options.settings.learning_rate == 0.001
    assert options.run_directory == Path("/r")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--task_index=0 --ps_hosts=a:1 --worker_hosts=b:1", "--job_name is missing"),
        ("--job_name=chief --task_index=0 --ps_hosts=a:1 --worker_hosts=b:1", "expected ps or worker"),
        (
            "--job_name=ps --task_index=1 --ps_hosts=a:1 --worker_hosts=b:1",
            "--task_index is 1, expected 0 to 0",
        ),
        ("--job_name=ps --task_index=x --ps_hosts=a:1 --worker_hosts=b:1", "expected 0 to 0"),
        (
            "--job_name=ps --task_index=0 --ps_hosts=a --worker_hosts=b:1",
            "--ps_hosts has 'a', expected host:port",
        ),
        (
            "--job_name=ps --task_index=0 --ps_hosts=a:70000 --worker_hosts=b:1",
            "has 'a:70000', expected host:port",
        ),
        ("--job_name=ps --task_index=0 --ps_hosts=a:1 --worker_hosts=a:1", "'a:1' is there twice"),
        ("--job_name=ps --task_index=0 --ps_hosts=a:1 --worker_hosts=", "--worker_hosts is empty"),
        (f"{TUTORIAL} --steps=0", "--steps is '0'; expected an integer >= 1"),
        (f"{TUTORIAL} --stepps=3", "stepps"),
        (f"{TUTORIAL} steps=3", "'steps=3' is no flag"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: str, said: str) -> None:
    with pytest.raises(flags.UsageError) as refused:
        flags.parse(arguments.split())
    assert said in str(refused.value)


def test_every_problem_is_said_at_once_and_recorded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", *TUTORIAL.split(), "--steps=0", "--model=x"]
    ended = subprocess.run(
        [*command, f"--run_directory={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == USAGE
    assert "--steps is '0'" in ended.stderr
    assert "--model is 'x'" in ended.stderr
    record = json.loads((tmp_path / "events" / "worker1.jsonl").read_text())
    assert (record["event"], record["class"]) == ("failed", "usage")


def test_help_lists_every_flag() -> None:
    with pytest.raises(flags.HelpRequested) as help_text:
        flags.parse(["--help"])
    for name in ("job_name", "task_index", "ps_hosts", "worker_hosts", "run_id", "run_directory", *RULES):
        assert f"--{name} " in str(help_text.value)
    assert max(len(line) for line in str(help_text.value).splitlines()) <= 110

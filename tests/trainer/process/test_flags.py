"""The command line: the tutorials' four flags, every problem at once, and a help that lists all."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.repository import ROOT
from trainer.contract.exit_codes import USAGE
from trainer.contract.settings import RULES, TrainingSettings
from trainer.process import flags
from trainer.process.cluster import Cluster

TUTORIAL = (
    "--ps_hosts=10.0.0.1:2222 --worker_hosts=10.0.0.1:2223,[fe80::1]:2222 --job_name=worker --task_index=1"
)


def test_the_command_line_of_the_tutorials_is_accepted() -> None:
    options = flags.parse(TUTORIAL.split())
    assert options.cluster.task == "worker1"
    assert options.cluster.jobs == {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "[fe80::1]:2222"]}
    assert not options.cluster.is_chief
    assert options.settings.model == "mnist_mlp"
    assert options.run_directory is None


def test_a_local_run_needs_no_hosts_and_ignores_those_of_a_unit() -> None:
    unit = TUTORIAL.replace("--task_index=1", "--task_index=0")
    for arguments in ("--job_name=local", f"{unit} --replication=local", f"{unit} --job_name=local"):
        options = flags.parse(arguments.split())
        assert (options.cluster.task, options.settings.replication) == ("worker0", "local")
        assert options.cluster.ps_devices == ()
        assert options.cluster.workers == 1
        assert options.cluster.listeners == {}
        assert not options.cluster.serves


def test_the_flags_decide_which_tasks_serve_and_which_are_served() -> None:
    def cluster(*arguments: str) -> Cluster:
        return flags.parse([*TUTORIAL.split(), *arguments]).cluster

    assert not cluster().serves
    assert cluster().serving_tasks == {}
    in_graph = ("--replication=in_graph", "--existing_servers=true")
    assert cluster(*in_graph).serves
    client = cluster(*in_graph, "--task_index=0")
    assert client.serving_tasks == {"worker1": "/job:worker/task:1", "server0": "/job:worker/task:0"}
    assert list(client.listeners) == ["ps0", "server0", "worker1"]
    assert cluster("--existing_servers=true").serving_tasks == {"server1": "/job:worker/task:1"}
    server = cluster("--job_name=server")
    assert (server.task, server.device, server.serves) == ("server1", "/job:worker/task:1", True)


def test_the_workers_that_are_not_there_at_the_beginning_are_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert flags.parse(TUTORIAL.split()).cluster.absent == ()
    monkeypatch.setenv("PSFLEET_ABSENT_WORKERS", "2 10 x")
    assert flags.parse(TUTORIAL.split()).cluster.absent == (2, 10)


def test_sync_aggregates_the_gradients_of_all_workers_by_default() -> None:
    told = [*TUTORIAL.split(), "--replication=sync"]
    assert flags.parse(told).settings.replicas_to_aggregate == 2
    assert flags.parse([*told, "--replicas_to_aggregate=1"]).settings.replicas_to_aggregate == 1


def test_training_flags_are_parsed_into_settings() -> None:
    options = flags.parse([*TUTORIAL.split(), "--steps", "7", "--learning_rate=1e-3", "--run_directory=/r"])
    assert options.settings.steps == 7
    assert options.settings.learning_rate == 0.001
    assert options.run_directory == Path("/r")


def test_the_settings_in_a_file_are_taken_and_flags_override_them(tmp_path: Path) -> None:
    file = tmp_path / "my settings.json"
    own = TrainingSettings("linear", steps=7, learning_rate=None, data_dir='/my "data"', threads=2)
    file.write_text(json.dumps(own.as_dict()))
    options = flags.parse([*TUTORIAL.split(), f"--settings={file}", "--threads=3"])
    assert options.settings == replace(own, threads=3)
    file.write_text('{"replication": "local"}')
    assert flags.parse(["--job_name=local", f"--settings={file}"]).cluster.is_local


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (
            '{"steps": 0, "threads": "many", "stepps": 3}',
            [
                "{file}: steps is 0; expected an integer >= 1",
                "--threads is 'few'; expected an integer >= 1, or null for the cores of the host, shared by "
                "its tasks",
                "{file}: stepps is 3; expected a setting that exists (did you mean steps?)",
            ],
        ),
        (
            "[1]",
            ["--settings is '{file}', which holds no object; expected a JSON object of training"],
        ),
        ("{", ["--settings is '{file}', which cannot be read (Expecting property name"]),
        ("[" * 100_000, ["--settings is '{file}', which cannot be read ("]),
        (None, ["--settings is '{file}', which cannot be read ([Errno 2]"]),
    ],
)
def test_a_wrong_file_of_settings_is_refused(
    tmp_path: Path, content: str | None, problems: list[str]
) -> None:
    file = tmp_path / "settings.json"
    if content is not None:
        file.write_text(content)
    own = ["--threads=few"] if content and "threads" in content else []
    with pytest.raises(flags.UsageError) as refused:
        flags.parse([*TUTORIAL.split(), f"--settings={file}", *own])
    assert len(refused.value.problems) == len(problems)
    for problem, said in zip(refused.value.problems, problems, strict=True):
        assert problem.startswith(said.format(file=file))


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
        (f"{TUTORIAL} --stepps=3", "'--stepps=3' is no flag (did you mean --steps?)"),
        (f"{TUTORIAL} --step=3", "'--step=3' is no flag"),
        (f"{TUTORIAL} --steps", "--steps: expected one argument"),
        (f"{TUTORIAL} steps=3", "'steps=3' is no flag"),
        (
            f"{TUTORIAL} --replication=sync --replicas_to_aggregate=3",
            "--replicas_to_aggregate is 3; expected at most 2, the number of workers",
        ),
        ("--job_name=local --replication=sync", "--replication is 'sync', expected local"),
        (
            "--job_name=local --evaluate_every_steps=500",
            "--evaluate_every_steps is 500 without --run_directory, where checkpoints would go; "
            "expected 0, or a --run_directory",
        ),
        (
            "--job_name=local --stop_when=accuracy>0.9",
            "--stop_when is 'accuracy > 0.9' with --evaluate_every_steps 0",
        ),
        ("--job_name=local --steps=0", "--steps is '0'; expected an integer >= 1"),
        (f"{TUTORIAL} --replication=local", "--task_index is 1, expected 0"),
        ("--job_name=ps --task_index=0 --replication=local", "--job_name is 'ps', expected local"),
        (
            "--job_name=server --task_index=1 --ps_hosts=a:1 --worker_hosts=b:1",
            "--task_index is 1, expected 0 to 0, for --worker_hosts has 1",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: str, said: str) -> None:
    with pytest.raises(flags.UsageError) as refused:
        flags.parse(arguments.split())
    assert said in str(refused.value)
    assert len(refused.value.problems) == 1


def test_all_problems_of_the_command_line_are_printed_at_once_and_recorded(tmp_path: Path) -> None:
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


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        flags.parse(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    of_task = ("job_name", "task_index", "ps_hosts", "worker_hosts", "run_id", "run_directory", "settings")
    for name in (*of_task, *RULES):
        assert f"--{name} " in shown
    assert max(len(line) for line in shown.splitlines()) <= 110

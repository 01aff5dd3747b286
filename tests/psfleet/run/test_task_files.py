"""The files that deploy.yml and train.yml write for each task, read as systemd reads them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.people import begun_by
from psfleet.run.cuda_environment import cuda_environment
from psfleet.run.task_files import (
    environment_text,
    evaluator_files,
    gpu_drop_ins,
    run_file_paths,
    run_files,
    task_environments,
)
from tests.repository import ROOT
from tests.roles.rendered import TRAINER_ENVIRONMENT, trainer_files
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.contract.run_program import RunProgram
from trainer.host.task_traces import run_id_of

# The parser of environment files, which systemd has for logins, too.
SYSTEMD_READS = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
ROLES = ROOT / "roles"
PLAN = ClusterPlan(
    "psfleet",
    (
        PlannedTask("ps", 0, "node1", "10.0.0.1", 2222),
        PlannedTask("worker", 0, "node1", "10.0.0.1", 2223),
        PlannedTask("worker", 1, "node2", "[fd00::2]", 2222, (0, 3)),
    ),
)
TASKS = [PLAN.tasks[0].to_json(), PLAN.tasks[2].to_json()]
LOCK = (ROLES / "package_store" / "files" / "cuda.txt").read_text(encoding="utf-8")
CUDA = cuda_environment("gpu-python3.11-x86_64", "/opt/psfleet", LOCK, "/usr/local/cuda", [])


@pytest.mark.skipif(not SYSTEMD_READS.exists(), reason="needs systemd")
def test_only_with_an_evaluator_each_task_is_told_where_it_receives_checkpoints() -> None:
    evaluator = PlannedTask("evaluator", 0, "node3", "10.0.0.3", 2222)
    plan = ClusterPlan("psfleet", (*PLAN.tasks, evaluator))
    line = 'PSFLEET_EVALUATOR_ADDRESS="10.0.0.3:2222"'
    tasks = [TASKS[0], evaluator.to_json()]
    found = task_environments(tasks, "/etc/psfleet/tasks", plan.to_json(), "aaaaaaaaaaaa", CUDA)
    assert [line in file["content"].splitlines() for file in found] == [True, True]
    without = task_environments(TASKS, "/etc/psfleet/tasks", PLAN.to_json(), "aaaaaaaaaaaa", CUDA)
    assert not any("EVALUATOR" in file["content"] for file in without)


def test_each_task_gets_the_cluster_and_its_own_gpus_as_systemd_reads_them(tmp_path: Path) -> None:
    ps, worker = task_environments(TASKS, "/etc/psfleet/tasks", PLAN.to_json(), "aaaaaaaaaaaa", CUDA)
    assert worker["dest"] == "/etc/psfleet/tasks/worker-1.env"
    read = read_by_systemd(worker["content"], tmp_path)
    assert json.loads(read.pop("TF_CONFIG")) == {
        "cluster": {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "[fd00::2]:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    assert read == {
        "PSFLEET_PS_HOSTS": "10.0.0.1:2222",
        "PSFLEET_WORKER_HOSTS": "10.0.0.1:2223,[fd00::2]:2222",
        "PSFLEET_PLAN_HASH": PLAN.hash,
        "PSFLEET_RELEASE": "aaaaaaaaaaaa",
        "CUDA_VISIBLE_DEVICES": "0,3",
        **CUDA,
    }
    # Units accept an empty value; the parser for logins, used here, does not.
    text, no_gpus, rest = ps["content"].partition('CUDA_VISIBLE_DEVICES=""\n')
    assert (bool(no_gpus), rest) == (True, 'LD_LIBRARY_PATH=""\n')
    assert json.loads(read_by_systemd(text, tmp_path)["TF_CONFIG"])["task"] == {"type": "ps", "index": 0}


def read_by_systemd(content: str, folder: Path) -> dict[str, str]:
    """Return the variables that systemd's own parser finds in an environment file."""
    file = folder / "environment.d" / "task.conf"
    file.parent.mkdir(exist_ok=True)
    file.write_text(content, encoding="utf-8")
    environment = {"XDG_CONFIG_HOME": str(folder)}
    done = subprocess.run([SYSTEMD_READS], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    # It prints them for a shell.
    shell = ["bash", "-c", "set -a; . /dev/stdin; exec env -0"]
    done = subprocess.run(shell, input=done.stdout, env={}, capture_output=True, text=True, check=True)
    written = {line.partition("=")[0] for line in content.splitlines()}
    variables = (variable.partition("=") for variable in done.stdout.split("\0"))
    return {name: value for name, _, value in variables if name in written}


@pytest.mark.skipif(not SYSTEMD_READS.exists(), reason="needs systemd")
def test_a_variable_of_the_inventory_reaches_systemd_as_it_is_whatever_characters_it_has(
    tmp_path: Path,
) -> None:
    text = trainer_files()["/etc/psfleet/environment.env"]
    # The parser for logins, used here, also expands variables, which units do not: there, $$ is a dollar.
    assert read_by_systemd(text.replace("$", "$$"), tmp_path) == TRAINER_ENVIRONMENT


@pytest.mark.parametrize("value", ['x"\nB="y', "both ' and \"", "back\\slash"])
def test_a_value_that_would_break_the_environment_file_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="A is "):
        environment_text({"A": value})


def test_only_units_of_tasks_with_gpus_have_the_drop_in_for_gpus() -> None:
    server = {"job": "server", "index": 1, "gpus": [0, 3]}
    assert gpu_drop_ins(TASKS[:1], "/units", "", "") == []
    devices, *drop_ins = gpu_drop_ins([*TASKS, server], "/units", "[Service]\n", "[Unit]\n")
    assert devices["dest"] == "/units/psfleet-gpu-devices.service"
    assert drop_ins == [
        {"dest": f"/units/psfleet-{unit}.service.d/gpu.conf", "content": "[Service]\n"}
        for unit in ("worker@1", "server@1", "doctor@worker-1")
    ]


def test_gpus_without_an_environment_for_them_are_refused() -> None:
    with pytest.raises(
        ValueError, match="worker1 has GPUs, and the environment of node2 is not made for them"
    ):
        task_environments(TASKS, "/etc/psfleet/tasks", PLAN.to_json(), "aaaaaaaaaaaa", {})


PATHS = {
    "configuration_directory": "/etc/psfleet",
    "state_directory": "/var/lib/psfleet",
    "install_directory": "/opt/psfleet",
}
DEPLOYED = {"release": "0a0a0a0a0a0a", "environment": "1b1b1b1b1b1b"}
RUN_TASKS = [{"name": "ps0", "job": "ps", "index": 0}, {"name": "server1", "job": "server", "index": 1}]


PROGRAM = {"release": "abc", "file": "/opt/p/abc/main.py", "arguments": [], "flags": False, "observed": True}
BEGUN = "ana as cluster@desk, 2026-11-25 09:12 UTC"


def files(program: dict[str, Any] | None = None) -> dict[str, str]:
    settings = {"tasks": {"ps0": {"model": "cnn"}, "server1": {"threads": None}}, "program": program}
    run = {"id": "r1", "settings": {"begun": BEGUN, **settings}}
    return {file["dest"]: file["content"] for file in run_files(RUN_TASKS, PATHS, run, DEPLOYED, "trainer")}


def test_the_files_of_each_task_contain_its_run_and_its_settings() -> None:
    found = files()
    assert list(found) == [
        f"/etc/psfleet/run/{task}.{kind}" for task in ("ps-0", "server-1") for kind in ("env", "json")
    ]
    lines = found["/etc/psfleet/run/server-1.env"].splitlines()
    assert 'PSFLEET_RUN_ID="r1"' in lines
    assert 'PSFLEET_RUN_DIRECTORY="/var/lib/psfleet/runs/r1"' in lines
    assert 'PSFLEET_PROGRAM=""' in lines
    assert json.loads(found["/etc/psfleet/run/ps-0.json"]) == {"model": "cnn"}
    assert json.loads(found["/etc/psfleet/run/server-1.json"]) == {"threads": None}


def test_the_file_of_each_task_names_the_workers_whose_places_are_empty() -> None:
    run = {"id": "r1", "settings": {"tasks": {"ps0": {}}}, "empty": ["worker2", "worker10"]}
    file, _ = run_files(RUN_TASKS[:1], PATHS, run, DEPLOYED, "trainer")
    assert 'PSFLEET_ABSENT_WORKERS="2 10"' in file["content"].splitlines()
    assert "ABSENT" not in "".join(files().values())


def test_the_beginner_of_a_run_is_read_from_the_file_of_its_tasks_and_validated(tmp_path: Path) -> None:
    file = tmp_path / "ps-0.env"
    file.write_text(files()["/etc/psfleet/run/ps-0.env"])
    assert (begun_by(file, "r1"), begun_by(file, "r0")) == (BEGUN, "")
    file.write_text(file.read_text().replace("cluster@desk", "cluster\x1b[2J@desk"))
    assert (run_id_of(file), begun_by(file, "r1")) == ("r1", "")


def test_the_file_of_a_task_names_the_release_and_environment_of_the_start() -> None:
    lines = files()["/etc/psfleet/run/ps-0.env"].splitlines()
    assert 'PSFLEET_RELEASE="0a0a0a0a0a0a"' in lines
    assert 'PSFLEET_CODE="/opt/psfleet/releases/0a0a0a0a0a0a"' in lines
    assert 'PSFLEET_PYTHON="/opt/psfleet/environments/1b1b1b1b1b1b/bin/python"' in lines


def test_tasks_of_a_program_get_the_path_of_its_description() -> None:
    program = {**PROGRAM, "arguments": ['say "hi"']}
    found = files(program)
    lines = found["/etc/psfleet/run/ps-0.env"].splitlines()
    assert 'PSFLEET_PROGRAM="/etc/psfleet/run/program.json"' in lines
    written = json.loads(found["/etc/psfleet/run/program.json"])
    assert written == RunProgram.from_json(program).to_json()
    assert written.items() >= program.items()


def test_tasks_of_a_program_get_the_python_of_its_environment_on_their_host() -> None:
    settings = {"tasks": {"ps0": {}}, "program": {**PROGRAM, "requirements": "abc"}}
    deployed = {**DEPLOYED, "program_environments": {"abc": "2c2c2c2c2c2c", "def": "3d3d3d3d3d3d"}}
    file, *_ = run_files(RUN_TASKS[:1], PATHS, {"id": "r1", "settings": settings}, deployed, "trainer")
    lines = file["content"].splitlines()
    assert 'PSFLEET_PROGRAM_PYTHON="/opt/psfleet/environments/2c2c2c2c2c2c/bin/python"' in lines
    assert 'PSFLEET_PYTHON="/opt/psfleet/environments/1b1b1b1b1b1b/bin/python"' in lines
    assert "PSFLEET_PROGRAM_PYTHON" not in files(PROGRAM)["/etc/psfleet/run/ps-0.env"]


def test_arguments_of_a_program_are_readable_only_by_its_user() -> None:
    settings = {"tasks": {"ps0": {}}, "program": {**PROGRAM, "arguments": ["--key=1"]}}
    run = {"id": "r1", "settings": settings}
    *others, program = run_files(RUN_TASKS[:1], PATHS, run, DEPLOYED, "trainer")
    assert (program["group"], program["mode"]) == ("trainer", "0640")
    assert "--key" not in "".join(file["content"] for file in others)


def test_a_host_without_a_task_in_the_run_gets_no_file() -> None:
    run = {"id": "r1", "settings": {"tasks": {}, "program": {"release": "abc"}}}
    assert run_files([], PATHS, run, DEPLOYED, "trainer") == []


def test_the_file_of_the_evaluator_names_its_run_and_hides_the_gpus() -> None:
    (file,) = evaluator_files(PATHS, {"id": "r1", "lead": {"name": "worker0"}})
    assert file["dest"] == "/etc/psfleet/run/evaluation-0.env"
    lines = file["content"].splitlines()
    assert 'PSFLEET_RUN_DIRECTORY="/var/lib/psfleet/runs/r1"' in lines
    assert 'CUDA_VISIBLE_DEVICES=""' in lines
    assert 'PSFLEET_EVALUATOR_FLAGS=""' in lines
    assert not [line for line in lines if line.startswith(("PSFLEET_CODE=", "PSFLEET_PYTHON="))]


def test_an_export_uses_what_is_deployed_whatever_run_was_the_last() -> None:
    run = {"id": "r1", "lead": {"name": "chief0"}, "exporter": {"name": "worker1"}, "deployed": DEPLOYED}
    (file,) = evaluator_files(PATHS, run, "--export")
    lines = file["content"].splitlines()
    assert 'PSFLEET_EVALUATOR_FLAGS="--export"' in lines
    assert 'PSFLEET_EVALUATED_TASK="worker1"' in lines
    of_task = files()["/etc/psfleet/run/ps-0.env"].splitlines()
    for name in ("PSFLEET_RELEASE", "PSFLEET_CODE", "PSFLEET_PYTHON"):
        (line,) = (line for line in lines if line.startswith(f"{name}="))
        assert line in of_task


def test_run_file_paths_returns_the_paths_of_the_written_files() -> None:
    assert run_file_paths(RUN_TASKS, "/etc/psfleet") == list(files())

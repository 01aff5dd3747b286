"""The units as the role renders them, judged by systemd itself."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from plugins.filter.exit_codes import exit_codes
from plugins.filter.run_files import run_environment_path
from plugins.filter.task_files import (
    cuda_environment_of,
    environment_text,
    gpu_drop_ins,
    task_environments,
)
from plugins.modules.trainer_units import departed, loaded_units
from trainer.exit_codes import NO_RESTART
from trainer.plan import JOBS, ClusterPlan, Task
from trainer.run_tasks import SERVER

# The parser of environment files, which systemd has for logins, too.
SYSTEMD_READS = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
ROLE = Path(__file__).resolve().parents[2] / "roles" / "trainer"
PLAN = ClusterPlan(
    "psfleet",
    (
        Task("ps", 0, "node1", "10.0.0.1", 2222),
        Task("worker", 0, "node1", "10.0.0.1", 2223),
        Task("worker", 1, "node2", "[fd00::2]", 2222, (0, 3)),
    ),
)
TASKS: list[dict[str, Any]] = [
    {"job": "ps", "index": 0, "gpus": []},
    {"job": "worker", "index": 1, "gpus": [0, 3]},
]
RUN_JOBS = (*JOBS, SERVER)
LOCK = (ROLE.parent / "package_store" / "files" / "cuda.txt").read_text(encoding="utf-8")
CUDA = cuda_environment_of("gpu-python3.11-x86_64", "/opt/psfleet", LOCK, "/usr/local/cuda", [])
with_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def render(folder: Path) -> Path:
    """Write the units of a host below `folder`, where their program exists, and return their directory."""
    jinja = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        autoescape=False,
    )
    jinja.filters |= {"exit_codes": exit_codes, "run_environment_path": run_environment_path}
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    python = folder / "opt" / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(shutil.which("true") or "")
    values = {
        **defaults,
        "trainer_user": "root",
        "cluster_paths": {
            "install_directory": str(folder / "opt"),
            "state_directory": "/var/lib/psfleet",
            "log_directory": "/var/log/psfleet",
        },
        "__trainer_configuration": "/etc/psfleet",
        "__trainer_tasks": TASKS,
    }
    units = folder / "units"
    units.mkdir()
    for job in RUN_JOBS:
        text = jinja.get_template("task.service.j2").render(values, job=job)
        (units / f"psfleet-{job}@.service").write_text(text + "\n", encoding="utf-8")
    for name in ("journal", "evaluator", "doctor"):
        text = jinja.get_template(f"{name}.service.j2").render(values)
        (units / f"psfleet-{name}@.service").write_text(text + "\n", encoding="utf-8")
    metrics = {**values, "trainer_user": "daemon", "trainer_metrics_directory": "/var/lib/textfiles"}
    for kind in ("service", "timer"):
        text = jinja.get_template(f"metrics.{kind}.j2").render(metrics)
        (units / f"psfleet-metrics.{kind}").write_text(text + "\n", encoding="utf-8")
    for name in ("psfleet.target", "psfleet-gpu-devices.service"):
        shutil.copy(ROLE / "files" / name, units)
    return units


def verify(units: Path, name: str) -> str:
    command = ["systemd-analyze", "verify", str(units / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr + ("" if done.returncode == 0 else f"rc {done.returncode}")


@with_systemd
@pytest.mark.parametrize(
    "name",
    [
        *(f"psfleet-{job}@.service" for job in (*RUN_JOBS, "journal", "evaluator", "doctor")),
        "psfleet.target",
        "psfleet-gpu-devices.service",
        "psfleet-metrics.service",
        "psfleet-metrics.timer",
    ],
)
def test_systemd_has_nothing_to_say_about_a_unit(tmp_path: Path, name: str) -> None:
    units = render(tmp_path)
    assert verify(units, name) == ""
    (units / name).write_text((units / name).read_text().replace("[Unit]", "[Unit]\nAftr=x"))
    assert "Aftr" in verify(units, name)


@with_systemd
@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("psfleet-worker@", 20),
        ("psfleet-evaluator@", 10),
        ("psfleet-doctor@", 10),
        ("psfleet-metrics", 10),
    ],
)
def test_a_unit_is_exposed_no_more_than_promised(tmp_path: Path, name: str, threshold: int) -> None:
    units = render(tmp_path)
    unit = units / f"{name}.service"
    unit.write_text(unit.read_text().replace("User=root", "User=daemon"))
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={threshold}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1:]


def test_a_task_is_not_started_again_for_what_that_cannot_mend(tmp_path: Path) -> None:
    text = (render(tmp_path) / "psfleet-worker@.service").read_text()
    line = next(line for line in text.splitlines() if line.startswith("RestartPreventExitStatus="))
    assert line.partition("=")[2].split() == [str(code) for code in NO_RESTART]


def test_root_reads_through_no_link_of_who_writes_the_metrics(tmp_path: Path) -> None:
    """The unit's own copying, done here with a link in place of what was written."""
    unit = (render(tmp_path) / "psfleet-metrics.service").read_text()
    (command,) = (line for line in unit.splitlines() if line.startswith("ExecStartPost=!/bin/cp "))
    written, taken = tmp_path / "psfleet-metrics" / "psfleet.prom", tmp_path / "taken"
    written.parent.mkdir()
    (tmp_path / "secret").write_text("secret")
    written.symlink_to(tmp_path / "secret")
    *copy, source, _ = shlex.split(command.partition("!")[2])
    subprocess.run([*copy, source.replace("%t", str(tmp_path)), str(taken)], check=True)
    assert taken.is_symlink(), "who reads it does so with rights of its own"


def test_the_timer_may_come_every_second(tmp_path: Path) -> None:
    """By default systemd gives up a unit that is started more than 5 times in 10 s."""
    assert "StartLimitIntervalSec=0\n" in (render(tmp_path) / "psfleet-metrics.service").read_text()


def test_what_computes_with_a_task_of_its_host_stops_before_it(tmp_path: Path) -> None:
    units = render(tmp_path)

    def after(job: str) -> list[str]:
        lines = (units / f"psfleet-{job}@.service").read_text().splitlines()
        return [line.removeprefix("After=") for line in lines if line.startswith("After=psfleet-")]

    assert after("ps") == []
    assert after("server") == ["psfleet-ps@0.service"]
    assert after("worker") == ["psfleet-ps@0.service", "psfleet-server@%i.service"]
    assert after("chief") == ["psfleet-ps@0.service", "psfleet-worker@1.service"]


def test_a_server_is_told_of_the_cluster_what_its_worker_is_told(tmp_path: Path) -> None:
    text = (render(tmp_path) / "psfleet-server@.service").read_text()
    assert "EnvironmentFile=/etc/psfleet/tasks/worker-%i.env\n" in text
    assert "EnvironmentFile=/etc/psfleet/run/server-%i.env\n" in text
    assert "--job_name=server " in text


@pytest.mark.skipif(not SYSTEMD_READS.exists(), reason="needs systemd")
def test_each_task_gets_the_cluster_and_its_own_gpus_as_systemd_reads_them(tmp_path: Path) -> None:
    ps, worker = task_environments(TASKS, "/etc/psfleet/tasks", PLAN.to_json(), "aaaaaaaaaaaa", CUDA)
    assert worker["path"] == "/etc/psfleet/tasks/worker-1.env"
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
    # For units an empty value is one; for logins it is none, so their parser does not take it.
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
    lines = [shlex.split(line)[0].partition("=") for line in done.stdout.splitlines()]
    written = {line.partition("=")[0] for line in content.splitlines()}
    return {name: value for name, _, value in lines if name in written}


@pytest.mark.parametrize("value", ['x"\nB="y', "both ' and \"", "back\\slash"])
def test_a_value_that_would_break_the_environment_file_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="A is "):
        environment_text({"A": value})


def test_only_a_task_with_gpus_sees_devices_and_so_do_its_server_and_its_doctor() -> None:
    server = {"job": "server", "index": 1, "gpus": [0, 3]}
    assert gpu_drop_ins([*TASKS, server], "/units", "[Service]\n") == [
        {"path": f"/units/psfleet-{unit}.service.d/gpu.conf", "content": "[Service]\n"}
        for unit in ("worker@1", "server@1", "doctor@worker-1")
    ]


def test_a_task_has_the_libraries_of_its_environment_in_the_python_of_its_host() -> None:
    """The locked wheels have their libraries in nvidia/*/lib, and nvidia-cuda-nvcc-cu12 has none."""
    found = cuda_environment_of("gpu-python3.13-x86_64", "/opt/ml", LOCK, "/usr/local/cuda", [])
    packages = "/opt/ml/environment/lib/python3.13/site-packages/nvidia"
    libraries = found["LD_LIBRARY_PATH"].split(":")
    assert {f"{packages}/{name}/lib" for name in ("cuda_runtime", "cudnn", "nccl", "nvjitlink")} < set(
        libraries
    )
    locked = [line for line in LOCK.splitlines() if line.startswith("nvidia-")]
    assert len(libraries) == len(set(libraries)) == len(locked) - 1
    assert found["PATH"].startswith(f"{packages}/cuda_nvcc/bin:")
    assert found["XLA_FLAGS"] == f"--xla_gpu_cuda_data_dir={packages}/cuda_nvcc"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "the inventory counts as nvidia-smi does"


def test_a_host_may_have_cuda_of_its_own() -> None:
    name = "gpu-system-python3.11-x86_64"
    found = cuda_environment_of(name, "/opt/psfleet", LOCK, "/opt/cuda", [])
    assert found["LD_LIBRARY_PATH"] == "/opt/cuda/lib64:/opt/cuda/extras/CUPTI/lib64"
    assert found["PATH"].startswith("/opt/cuda/bin:")
    assert found["XLA_FLAGS"] == "--xla_gpu_cuda_data_dir=/opt/cuda"
    libraries = ["/opt/cuda/lib64", "/opt/cudnn/lib"]
    found = cuda_environment_of(name, "/opt/psfleet", LOCK, "/opt/cuda", libraries)
    assert found["LD_LIBRARY_PATH"] == ":".join(libraries)


def test_a_host_without_gpus_is_told_of_no_cuda() -> None:
    assert cuda_environment_of("cpu-python3.11-aarch64", "/opt/psfleet", LOCK, "/usr/local/cuda", []) == {}


def test_gpus_without_an_environment_for_them_are_refused() -> None:
    with pytest.raises(
        ValueError, match="worker1 has GPUs, and the environment of node2 is not made for them"
    ):
        task_environments(TASKS, "/etc/psfleet/tasks", PLAN.to_json(), "aaaaaaaaaaaa")


def test_a_lock_without_the_compilers_is_refused() -> None:
    with pytest.raises(ValueError, match="make lock"):
        cuda_environment_of(
            "gpu-python3.11-x86_64", "/opt/psfleet", "nvidia-cudnn-cu12==9\n", "/usr/local/cuda", []
        )


@with_systemd
@pytest.mark.parametrize("unit", ["worker@1", "server@1", "doctor@worker-1"])
def test_a_unit_with_gpus_is_one_that_systemd_takes(tmp_path: Path, unit: str) -> None:
    units = render(tmp_path)
    drop_in = give_gpus(units, unit)
    assert verify(units, f"psfleet-{unit}.service") == ""
    drop_in.write_text(drop_in.read_text().replace("DevicePolicy=", "DevicePolicies="))
    assert "DevicePolicies" in verify(units, f"psfleet-{unit}.service")


@with_systemd
def test_a_unit_with_gpus_is_exposed_no_more_than_promised(tmp_path: Path) -> None:
    units = render(tmp_path)
    drop_in = give_gpus(units, "worker@1")
    template = (units / "psfleet-worker@.service").read_text()
    (units / "psfleet-worker@1.service").write_text(template.replace("User=root", "User=daemon"))
    seen = exposure(units / "psfleet-worker@1.service")
    assert 14 < seen <= 18
    drop_in.write_text(drop_in.read_text() + "SystemCallFilter=@mount\nRestrictAddressFamilies=AF_PACKET\n")
    assert exposure(units / "psfleet-worker@1.service") > seen


def give_gpus(units: Path, unit: str) -> Path:
    """Write the drop-in of a unit's instance, and return it."""
    drop_in = units / f"psfleet-{unit}.service.d" / "gpu.conf"
    drop_in.parent.mkdir()
    shutil.copy(ROLE / "files" / "gpu.conf", drop_in)
    return drop_in


def exposure(unit: Path) -> int:
    """Return what `systemd-analyze security` says of a unit, in tenths: 0 is best, 100 worst."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figure = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert figure, done.stdout
    return round(10 * float(figure[1]))


def test_units_of_tasks_that_left_the_plan_are_found() -> None:
    printed = (
        "psfleet-ps@0.service loaded active running psfleet: ps 0\n"
        "psfleet-worker@1.service loaded active running psfleet: worker 1\n"
        "psfleet-worker@11.service loaded failed failed psfleet: worker 11\n"
        "psfleet-server@1.service loaded active running psfleet: server 1\n"
        "psfleet-chief@0.service loaded active running psfleet: chief 0\n"
        "psfleet-evaluator@0.service loaded failed failed psfleet: evaluator 0\n"
        "psfleet-journal@worker11.service loaded active running copy\n"
    )
    assert departed(loaded_units(printed), [("ps", 0), ("worker", 1)]) == [
        "psfleet-worker@11.service",
        "psfleet-server@1.service",
        "psfleet-chief@0.service",
        "psfleet-evaluator@0.service",
    ]

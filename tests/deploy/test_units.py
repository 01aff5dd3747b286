"""The units as the role renders them, judged by systemd itself."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from plugins.filter.exit_codes import exit_codes
from plugins.filter.task_files import environment_text, gpu_drop_ins, task_environments
from plugins.modules.trainer_units import departed, loaded_units
from trainer.exit_codes import NO_RESTART

ROLE = Path(__file__).resolve().parents[2] / "roles" / "trainer"
PLAN = {"hash": "0a1b2c3d4e5f", "ps_hosts": "10.0.0.1:2222", "worker_hosts": "10.0.0.1:2223,10.0.0.2:2222"}
TASKS: list[dict[str, Any]] = [
    {"job": "ps", "index": 0, "gpus": []},
    {"job": "worker", "index": 1, "gpus": [0, 3]},
]
with_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


def render(folder: Path) -> Path:
    """Write the units of a host below `folder`, where their program exists, and return their directory."""
    jinja = Environment(
        loader=FileSystemLoader(ROLE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        autoescape=False,
    )
    jinja.filters["exit_codes"] = exit_codes
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
    for job in ("ps", "worker"):
        text = jinja.get_template("task.service.j2").render(values, job=job)
        (units / f"psfleet-{job}@.service").write_text(text + "\n", encoding="utf-8")
    text = jinja.get_template("journal.service.j2").render(values)
    (units / "psfleet-journal@.service").write_text(text + "\n", encoding="utf-8")
    shutil.copy(ROLE / "files" / "psfleet.target", units)
    return units


def verify(units: Path, name: str) -> str:
    command = ["systemd-analyze", "verify", str(units / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr + ("" if done.returncode == 0 else f"rc {done.returncode}")


@with_systemd
@pytest.mark.parametrize(
    "name", ["psfleet-ps@.service", "psfleet-worker@.service", "psfleet-journal@.service", "psfleet.target"]
)
def test_systemd_has_nothing_to_say_about_a_unit(tmp_path: Path, name: str) -> None:
    units = render(tmp_path)
    assert verify(units, name) == ""
    (units / name).write_text((units / name).read_text().replace("[Unit]", "[Unit]\nAftr=x"))
    assert "Aftr" in verify(units, name)


@with_systemd
def test_a_task_is_exposed_no_more_than_promised(tmp_path: Path) -> None:
    units = render(tmp_path)
    unit = units / "psfleet-worker@.service"
    unit.write_text(unit.read_text().replace("User=root", "User=daemon"))
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1:]


def test_a_task_is_not_started_again_for_what_that_cannot_mend(tmp_path: Path) -> None:
    text = (render(tmp_path) / "psfleet-worker@.service").read_text()
    line = next(line for line in text.splitlines() if line.startswith("RestartPreventExitStatus="))
    assert line.partition("=")[2].split() == [str(code) for code in NO_RESTART]


def test_a_worker_stops_before_the_ps_of_its_host(tmp_path: Path) -> None:
    units = render(tmp_path)
    assert "After=psfleet-ps@0.service" in (units / "psfleet-worker@.service").read_text()
    assert "After=psfleet-ps@0.service" not in (units / "psfleet-ps@.service").read_text()


def test_each_task_gets_the_cluster_and_its_own_gpus() -> None:
    ps, worker = task_environments(TASKS, "/etc/psfleet/tasks", PLAN, "aaaaaaaaaaaa")
    assert worker["path"] == "/etc/psfleet/tasks/worker-1.env"
    assert 'PSFLEET_WORKER_HOSTS="10.0.0.1:2223,10.0.0.2:2222"\n' in worker["content"]
    assert 'PSFLEET_RELEASE="aaaaaaaaaaaa"\n' in worker["content"]
    assert 'CUDA_VISIBLE_DEVICES="0,3"\n' in worker["content"]
    assert 'CUDA_VISIBLE_DEVICES=""\n' in ps["content"]


def test_a_value_that_would_break_the_environment_file_is_refused() -> None:
    with pytest.raises(ValueError, match="A is 'x"):
        environment_text({"A": 'x"\nB="y'})


def test_only_a_task_with_gpus_sees_devices() -> None:
    assert gpu_drop_ins(TASKS, "/etc/systemd/system", "[Service]\n") == [
        {"path": "/etc/systemd/system/psfleet-worker@1.service.d/gpu.conf", "content": "[Service]\n"}
    ]


def test_units_of_tasks_that_left_the_plan_are_found() -> None:
    printed = (
        "psfleet-ps@0.service loaded active running psfleet: ps 0\n"
        "psfleet-worker@1.service loaded active running psfleet: worker 1\n"
        "psfleet-worker@11.service loaded failed failed psfleet: worker 11\n"
        "psfleet-journal@worker11.service loaded active running copy\n"
    )
    assert departed(loaded_units(printed), [("ps", 0), ("worker", 1)]) == ["psfleet-worker@11.service"]

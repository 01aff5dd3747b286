"""The units of a host, judged by systemd itself."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from plugins.module_utils.host.task_units import RUN_JOBS, UNIT_JOBS, parse_list
from plugins.module_utils.network.fence_rules import Endpoint, Fence, unit_drop_in
from plugins.module_utils.tasks.boots import SHUTDOWN
from plugins.module_utils.tasks.reloaded_units import departed_units
from plugins.modules.port_fence import PortFence
from tests.roles.rendered import files_of, template_of
from trainer.contract.exit_codes import NO_RESTART
from trainer.contract.plan import ClusterPlan, PlannedTask

UNITS = "/etc/systemd/system"
PLAN = ClusterPlan(
    "lab",
    (PlannedTask("ps", 0, "here", "here", 2222), PlannedTask("worker", 1, "here", "here", 2223, (0, 3))),
)
with_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a host's units; the Python that the units start exists."""
    folder = tmp_path_factory.mktemp("host")
    python = folder / "opt" / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(shutil.which("true") or "")
    for name, content in files_of_host(folder).items():
        path = Path(f"{folder}/units{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder / "units"


def files_of_host(folder: Path) -> dict[str, str]:
    """Return the content of each unit of a deployment, by the path without the folder of units."""
    given = {"trainer_user": "daemon", "trainer_metrics_directory": "/var/lib/textfiles"}
    found = files_of("trainer", PLAN, str(folder / "opt"), "gpu-python3.11-x86_64", **given)
    units = {path.removeprefix(UNITS): text for path, text in found.items() if path.startswith(UNITS)}
    return {**units, "/psfleet-fence.service": template_of("port_fence", "psfleet-fence.service.j2")}


@pytest.fixture
def units(deployed: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(deployed, tmp_path / "units"))


def verify(units: Path, name: str) -> str:
    command = ["systemd-analyze", "verify", str(units / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr + ("" if done.returncode == 0 else f"rc {done.returncode}")


@with_systemd
@pytest.mark.parametrize(
    "name",
    [
        *(f"psfleet-{job}@.service" for job in (*UNIT_JOBS, "journal", "doctor")),
        "psfleet.target",
        "psfleet-gpu-devices.service",
        "psfleet-fence.service",
        "psfleet-metrics.service",
        "psfleet-metrics.timer",
    ],
)
def test_systemd_verifies_each_unit_without_a_warning(units: Path, name: str) -> None:
    assert verify(units, name) == ""
    (units / name).write_text((units / name).read_text().replace("[Unit]", "[Unit]\nAftr=x"))
    assert "Aftr" in verify(units, name)


def test_a_host_has_the_units_of_all_jobs(units: Path) -> None:
    for job in RUN_JOBS:
        assert f"--job_name={job} " in (units / f"psfleet-{job}@.service").read_text()
    assert {f"psfleet-{job}@.service" for job in UNIT_JOBS} <= {path.name for path in units.iterdir()}


@with_systemd
@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("psfleet-worker@", 14),
        ("psfleet-evaluation@", 7),
        ("psfleet-doctor@", 7),
        ("psfleet-metrics", 7),
        ("psfleet-journal@", 7),
        ("psfleet-fence", 40),
    ],
)
def test_the_exposure_level_of_a_unit_is_bounded(units: Path, name: str, threshold: int) -> None:
    assert exposure(units / f"{name}.service") <= threshold


def test_a_task_is_not_restarted_after_an_exit_code_that_a_restart_cannot_mend(units: Path) -> None:
    text = (units / "psfleet-worker@.service").read_text()
    line = next(line for line in text.splitlines() if line.startswith("RestartPreventExitStatus="))
    assert line.partition("=")[2].split() == [str(code) for code in NO_RESTART]


@pytest.mark.parametrize(
    ("status", "goes_down", "disabled"),
    [
        *(("0", goes_down, True) for goes_down in (False, True)),
        *(("70", goes_down, True) for goes_down in (False, True)),
        ("143", False, True),
        ("TERM", False, True),
        ("143", True, False),
        ("TERM", True, False),
        ("KILL", False, False),
        ("75", False, False),
    ],
)
def test_a_unit_is_disabled_unless_its_host_shuts_down_and_ends_it(
    units: Path, tmp_path: Path, status: str, goes_down: bool, disabled: bool
) -> None:
    """The unit's own command runs here with a systemctl that writes down its arguments."""
    text = (units / "psfleet-worker@.service").read_text().replace("\\\n", "")
    (command,) = (line for line in text.splitlines() if line.startswith("ExecStopPost=+"))
    shutdown, calls = tmp_path / "shutdown", tmp_path / "calls"
    if goes_down:
        shutdown.touch()
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" > {calls}\n')
    (tmp_path / "systemctl").chmod(0o755)
    command = command.partition("+")[2].replace("$$", "$").replace(str(SHUTDOWN), str(shutdown))
    environment = {"EXIT_STATUS": status, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(shlex.split(command), env=environment, check=True)
    assert calls.exists() is disabled
    if disabled:
        assert calls.read_text() == "--no-reload --quiet disable %n\n"


def test_root_copies_a_link_in_place_of_the_metrics_as_a_link(units: Path, tmp_path: Path) -> None:
    """The unit's own cp command runs here with a link in place of the metrics."""
    unit = (units / "psfleet-metrics.service").read_text()
    (command,) = (line for line in unit.splitlines() if line.startswith("ExecStartPost=!/bin/cp "))
    written, taken = tmp_path / "psfleet-metrics" / "psfleet.prom", tmp_path / "taken"
    written.parent.mkdir()
    (tmp_path / "secret").write_text("secret")
    written.symlink_to(tmp_path / "secret")
    *copy, source, _ = shlex.split(command.partition("!")[2])
    subprocess.run([*copy, source.replace("%t", str(tmp_path)), str(taken)], check=True)
    assert taken.is_symlink(), "who reads it does so with rights of its own"


def test_the_metrics_timer_may_elapse_every_second(units: Path) -> None:
    """By default systemd gives up a unit that is started more than 5 times in 10 s."""
    assert "StartLimitIntervalSec=0\n" in (units / "psfleet-metrics.service").read_text()


def test_tasks_stop_before_the_tasks_of_their_host_that_they_depend_on(units: Path) -> None:
    def after(job: str) -> list[str]:
        lines = (units / f"psfleet-{job}@.service").read_text().splitlines()
        return [line.removeprefix("After=") for line in lines if line.startswith("After=psfleet-")]

    assert after("ps") == []
    assert after("server") == ["psfleet-ps@0.service"]
    assert after("worker") == ["psfleet-ps@0.service", "psfleet-server@%i.service"]
    assert after("chief") == ["psfleet-ps@0.service", "psfleet-worker@1.service"]


def test_a_server_has_the_environment_file_of_its_worker(units: Path) -> None:
    text = (units / "psfleet-server@.service").read_text()
    assert "EnvironmentFile=/etc/psfleet/tasks/worker-%i.env\n" in text
    assert "EnvironmentFile=/etc/psfleet/run/server-%i.env\n" in text
    assert "--job_name=server " in text


@with_systemd
@pytest.mark.parametrize("unit", ["worker@1", "server@1", "doctor@worker-1"])
def test_systemd_verifies_the_unit_of_a_gpu_task(units: Path, unit: str) -> None:
    drop_in = units / f"psfleet-{unit}.service.d" / "gpu.conf"
    assert verify(units, f"psfleet-{unit}.service") == ""
    drop_in.write_text(drop_in.read_text().replace("DevicePolicy=", "DevicePolicies="))
    assert "DevicePolicies" in verify(units, f"psfleet-{unit}.service")


@with_systemd
def test_the_exposure_level_of_a_unit_with_gpus_is_bounded(units: Path) -> None:
    drop_in = units / "psfleet-worker@1.service.d" / "gpu.conf"
    shutil.copy(units / "psfleet-worker@.service", units / "psfleet-worker@1.service")
    seen = exposure(units / "psfleet-worker@1.service")
    assert 14 < seen <= 18
    drop_in.write_text(drop_in.read_text() + "SystemCallFilter=@mount\nRestrictAddressFamilies=AF_PACKET\n")
    assert exposure(units / "psfleet-worker@1.service") > seen


@with_systemd
@pytest.mark.parametrize("job", RUN_JOBS)
def test_no_task_starts_without_the_unit_of_the_fence(units: Path, tmp_path: Path, job: str) -> None:
    """Systemd verifies the drop-in that a deployment writes."""
    fence = Fence("a", "psfleet", (Endpoint("a", "[fd00::1]", 2222),), ("10.0.0.0/8:443",))
    (drop_in,) = [path for path in PortFence(tmp_path, units).task_drop_ins if f"-{job}@" in str(path)]
    drop_in.parent.mkdir()
    drop_in.write_text(unit_drop_in(fence))
    assert verify(units, f"psfleet-{job}@.service") == ""
    (units / "psfleet-fence.service").unlink()
    assert "psfleet-fence.service not found" in verify(units, f"psfleet-{job}@.service")


def exposure(unit: Path) -> int:
    """Return the exposure level of a unit by `systemd-analyze security`, in tenths: 0 is best, 100 worst."""
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figure = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert figure, done.stdout
    return round(10 * float(figure[1]))


def test_units_of_tasks_that_left_the_plan_are_listed() -> None:
    printed = (
        "psfleet-ps@0.service loaded active running psfleet: ps 0\n"
        "psfleet-worker@1.service loaded active running psfleet: worker 1\n"
        "psfleet-worker@11.service loaded failed failed psfleet: worker 11\n"
        "psfleet-server@1.service loaded active running psfleet: server 1\n"
        "psfleet-chief@0.service loaded active running psfleet: chief 0\n"
        "psfleet-evaluator@0.service loaded failed failed psfleet: evaluator 0\n"
        "psfleet-evaluation@0.service loaded failed failed psfleet: evaluation 0\n"
        "psfleet-journal@worker11.service loaded active running copy\n"
    )
    assert departed_units(parse_list(printed), [("ps", 0), ("worker", 1)]) == [
        "psfleet-worker@11.service",
        "psfleet-server@1.service",
        "psfleet-chief@0.service",
        "psfleet-evaluator@0.service",
        "psfleet-evaluation@0.service",
    ]

import time
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.checks import doctor
from plugins.module_utils.checks.doctor import environment_today, tasks_to_try, tensorflow_checks
from plugins.module_utils.checks.host_checks import HostNeeds
from plugins.module_utils.checks.port_checks import running_units, task_ports
from plugins.module_utils.deployment import Deployment
from plugins.module_utils.environments.environment import HostEnvironment
from plugins.module_utils.facts import host_requirements
from plugins.module_utils.facts.host_facts import read_host_facts
from plugins.modules import host_doctor
from plugins.plugin_utils.pages.doctor import environments_today, required_packages
from tests.plugins.module_utils.described import DESCRIBED
from tests.plugins.module_utils.recorded_hosts import DEBIAN_13
from tests.plugins.modules.module_run import fact_of, module_answer
from tests.repository import ROOT

ROLES = ROOT / "roles"
PS: dict[str, Any] = {"job": "ps", "index": 0, "gpus": []}
WORKER: dict[str, Any] = {"job": "worker", "index": 0, "gpus": [0]}
OTHER: dict[str, Any] = {"job": "worker", "index": 11, "gpus": [1, 2]}


def test_tensorflow_is_tried_for_each_deployed_gpu_task_or_else_for_one_task(tmp_path: Path) -> None:
    paths = {"configuration_directory": tmp_path, "log_directory": tmp_path}
    (tmp_path / "tasks").mkdir()
    deployment = Deployment(plan="a", environment="b", tensorflow="2.21.0", release="c")
    checks = tensorflow_checks({"tasks": [PS, WORKER]}, paths, deployment, check_mode=False)
    assert {(check.state, check.found) for check in checks} == {("skipped", "none of its tasks is deployed")}
    for name in ("ps-0", "worker-0", "worker-11"):
        (tmp_path / "tasks" / f"{name}.env").touch()
    assert tasks_to_try([PS, WORKER, OTHER], tmp_path) == ["worker-0", "worker-11"]
    assert tasks_to_try([PS, {**WORKER, "gpus": []}], tmp_path) == ["ps-0"]
    (tmp_path / "tasks" / "worker-0.env").unlink()
    assert tasks_to_try([PS, WORKER], tmp_path) == ["ps-0"]


def test_a_host_without_systemd_has_no_running_units(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert running_units(task_ports([{"job": "ps", "index": 0, "port": 2222}])) == {}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a deployment would install, by environment, where no wheel is on the controller yet."""
    return environments_today(ROLES / "package_store" / "files", tmp_path_factory.mktemp("cache"))


def test_every_environment_has_a_lock_and_sizes(
    locked: dict[str, dict[str, Any]],
) -> None:
    assert {HostEnvironment.parse(name).name for name in locked} == set(locked)
    assert len({size["lock_hash"] for size in locked.values()}) == len(locked) >= 12
    cpu, gpu = (locked[f"{device}-python3.11-x86_64"] for device in ("cpu", "gpu"))
    assert 300e6 < cpu["archive_bytes"] < 500e6
    assert 1.5e9 < cpu["environment_bytes"] < gpu["environment_bytes"] / 3


def test_an_unsupported_host_has_no_environment(locked: dict[str, dict[str, Any]]) -> None:
    facts = read_host_facts()
    found = environment_today({"environments": locked}, HostNeeds(python_version="3.9"), facts)
    assert found == {"lock_hash": "", "archive_bytes": 0, "environment_bytes": 0}


def test_doctor_refuses_a_host_for_a_program_with_the_words_of_a_deployment(
    locked: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = read_host_facts(DEBIAN_13.lay_out(tmp_path), "x86_64")
    for module in (doctor, host_requirements):
        monkeypatch.setattr(module, "read_host_facts", lambda: facts)
    old = {"key": "0" * 12, "tensorflow": "2.15.1", "pythons": ["3.10", "3.11"], "variable": "x"}
    new = {**old, "key": "1" * 12, "tensorflow": "2.20.0", "pythons": ["3.13"]}
    programs = required_packages([{"packages": of} for of in ({}, old, new, dict(old))])
    assert programs == [old, new]
    answer = module_answer(
        host_doctor,
        check=True,
        host="node1",
        tasks=[],
        addresses={"node1": "127.0.0.1"},
        sshd_port=22,
        plan="",
        release="",
        environments=locked,
        paths=dict.fromkeys(
            ("install_directory", "configuration_directory", "state_directory", "log_directory"),
            str(tmp_path),
        ),
        systems=DESCRIBED,
        programs=programs,
    )
    (python,) = (check for check in answer["checks"] if check["name"] == "python")
    assert python["state"] == "failed"
    assert python["found"].startswith("x takes TensorFlow 2.15.1, which has wheels for Python 3.10 and 3.11")
    refused = fact_of("requirements", host="node1", now=time.time(), programs=programs)["msg"]
    assert f"{python['found']}: {python['remedy']}" in refused

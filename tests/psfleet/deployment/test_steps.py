"""The arguments of a host's steps, and the playbook and roles that list these steps."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest
import yaml

from psfleet.deployment import package_store, ssh_mesh, tensorflow, trainer, training_files
from psfleet.deployment.steps import COMPUTED
from tests.psfleet.deployment.made_host import SIGNED, WHEELS, made_host
from tests.repository import ROOT
from trainer.host.port_checks import TaskPort, task_ports


def listed(content: object) -> Iterator[Mapping[str, Any]]:
    """Yield the computed steps in tasks, each with its `name`, `step` and `computed`."""
    for each in content if isinstance(content, list) else []:
        for key, value in each.items() if isinstance(each, dict) else ():
            if key == "psfleet.cluster.host_step" and "computed" in value:
                yield {"name": each["name"], **value}
            elif isinstance(value, dict) and "steps" in value:
                yield from (step for step in value["steps"] if "computed" in step)
            elif isinstance(value, list):
                yield from listed(value)


def steps_in(*files: str) -> list[Mapping[str, Any]]:
    return [step for file in files for step in listed(yaml.safe_load((ROOT / file).read_text()))]


def test_deploy_lists_the_steps_of_its_roles_in_their_order() -> None:
    """A role can be used alone, so its tasks must equal the steps that deploy.yml sends in few calls."""
    deployed = steps_in("playbooks/deploy.yml")
    roles = ("ssh_mesh", "port_fence", "tensorflow", "training_files", "trainer")
    of_roles = steps_in(*(f"roles/{role}/tasks/main.yml" for role in roles))
    looks = steps_in("roles/package_store/tasks/host.yml", "roles/nvidia_cuda/tasks/main.yml")
    looks += of_roles[:1]
    assert of_roles[0]["computed"] == "ssh_mesh.look"
    assert deployed[1:4] == looks
    assert deployed[4:] == of_roles[1:]


def test_each_computing_function_is_used_and_each_name_has_a_function() -> None:
    files = (path for folder in ("playbooks", "roles") for path in sorted((ROOT / folder).rglob("*.yml")))
    used = steps_in(*(str(path.relative_to(ROOT)) for path in files if path.parent.name != "meta"))
    assert {step["computed"] for step in used} == set(COMPUTED)


@pytest.mark.parametrize("step", steps_in("playbooks/deploy.yml"), ids=lambda step: step["computed"])
def test_a_step_has_every_option_that_is_computed_for_it(step: Mapping[str, Any]) -> None:
    programs = [{"name": "a", "source": "/a", "release": "a" * 12, "requirements": ""}]
    host = made_host(cluster={"programs": programs})
    options = set(import_module(f"plugins.module_utils.steps.{step['step']}").OPTIONS)
    # The controller uses these itself: it packs the source, and verifies keys by the authority.
    options |= {"source", "authority", "shared_by"}
    for arguments in COMPUTED[step["computed"]](host):
        assert set(arguments) <= options


def test_programs_with_the_same_files_are_carried_to_a_host_once() -> None:
    releases = {"a": "a" * 12, "b": "b" * 12, "same": "a" * 12}
    programs = [{"name": name, "source": f"/{name}", "release": of} for name, of in releases.items()]
    found = training_files.programs(made_host(cluster={"programs": programs}))
    assert [arguments["release"] for arguments in found] == ["a" * 12, "b" * 12]
    assert training_files.programs(made_host(cluster={"programs": programs, "tasks": {}})) == []


def test_releases_and_environments_of_the_deployment_are_kept() -> None:
    wheels = {**WHEELS, "program": {"lock_hash": "3" * 12}}
    programs = [{"name": "a", "source": "/a", "release": "a" * 12}]
    (arguments,) = trainer.unneeded(made_host(wheels=wheels, cluster={"programs": programs}))
    assert arguments["wanted"] == ["0" * 12, "a" * 12, "1" * 12, "3" * 12]


def test_the_link_names_the_environment_with_the_programs_requirements_if_there_is_one() -> None:
    assert [arguments["link"] for arguments in tensorflow.environment(made_host())] == ["environment"]
    assert tensorflow.program_environment(made_host()) == []
    host = made_host(wheels={**WHEELS, "program": {"lock_hash": "3" * 12}})
    assert [arguments["link"] for arguments in tensorflow.environment(host)] == [""]
    assert [arguments["base"] for arguments in tensorflow.program_environment(host)] == ["1" * 12]


def test_the_configuration_of_the_login_lists_each_host_of_the_plan_once() -> None:
    (arguments,) = ssh_mesh.files(made_host())
    (text,) = (file["content"] for file in arguments["files"] if file["path"].endswith("/config"))
    entries = [
        line.split() for line in text.splitlines() if line.startswith(("Host ", "    HostName", "    Port"))
    ]
    assert entries == [
        ["Host", "here"],
        ["HostName", "10.0.0.1"],
        ["Port", "22"],
        ["Host", "there"],
        ["HostName", "fd00::2"],
        ["Port", "2022"],
        ["Host", "here", "there"],
    ]


def test_the_files_of_unsigned_keys_contain_a_placeholder() -> None:
    signed = {**SIGNED, "authorities": {}, "certificates": {"here": {}}}
    (arguments,) = ssh_mesh.files(made_host(signed=signed))
    unsigned = [file["path"] for file in arguments["files"] if "signed when" in file["content"]]
    assert [path.rpartition("/")[2] for path in unsigned] == [
        "user_ca.pub",
        "host-cert.pub",
        "id_ed25519-cert.pub",
        "known_hosts",
    ]


def test_the_ports_and_the_tables_of_a_hosts_tasks_are_checked() -> None:
    data = {"source": "", "directories": {}}
    held = {"here": {"bytes": 7}}
    (arguments,) = trainer.look(made_host(cluster={"data": {**data, "tables": held}}))
    assert task_ports(arguments["starting"]) == [TaskPort("ps", 0, 2222), TaskPort("worker", 0, 2223)]
    assert arguments["tables"] == {"bytes": 7}
    elsewhere = {"there": {"bytes": 7}}
    assert trainer.look(made_host(cluster={"data": {**data, "tables": elsewhere}}))[0]["tables"] == {}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"source": "", "directories": {"here": ["/a", "/b"]}}, ["/a", "/b"]),
        ({"source": "/home/ana/data", "directories": {"here": ["/opt/psfleet/data"]}}, []),
        ({"source": "", "directories": {}}, []),
    ],
)
def test_only_data_folders_that_are_not_carried_are_checked(
    data: dict[str, Any], expected: list[str]
) -> None:
    (arguments,) = package_store.requirements(made_host(cluster={"data": data}))
    assert arguments["data_directories"] == expected

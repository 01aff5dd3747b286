"""The parts of a deployment that --tags chooses."""

import re

import pytest
import yaml

from tests.repository import HERE, ROOT, played

ROLES = re.findall(
    r"psfleet\.cluster\.(\w+)(?:, public: true\}|\n)", (ROOT / "playbooks/deploy.yml").read_text()
)


def listed(*options: str) -> list[str]:
    """Return the tasks of deploy.yml that Ansible lists with these options."""
    done = played(ROOT / "deploy.yml", "-i", "node1,", *HERE, "--list-tasks", *options)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^ {6}(\S.*?)\tTAGS: \[", done.stdout, re.MULTILINE)


def test_each_role_of_a_deployment_is_named_once_and_has_a_tag_of_its_name() -> None:
    assert [
        *("host_look", "package_store", "nvidia_cuda", "wireguard_mesh", "ssh_mesh", "port_fence"),
        *("tensorflow", "training_files", "trainer"),
    ] == ROLES
    tasks = yaml.safe_load((ROOT / "playbooks/deploy.yml").read_text())[1]["tasks"]
    tags = {}
    for task in tasks:
        role = task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role")
        if role:
            given = task["tags"]
            tags[role["name"].rpartition(".")[2]] = [given] if isinstance(given, str) else given
    assert {role: tags[role][0] for role in ROLES[1:]} == {role: role for role in ROLES[1:]}
    assert tags["host_look"] == ["always"]


@pytest.mark.parametrize("role", ["training_files", "trainer"])
def test_a_part_alone_has_the_look_at_the_hosts_and_nothing_of_another_role(role: str) -> None:
    found = [name for name in listed("--tags", role) if "Validating arguments" not in name]
    of_roles = [name.partition(" : ")[0].rpartition(".")[2] for name in found if " : " in name]
    needed = {"host_look", role} | ({"package_store"} if role == "trainer" else set())
    assert set(of_roles) == needed
    for name in ("Let nobody else act on the hosts until this has ended", "Let others act on the hosts"):
        assert name in found


def test_a_part_may_be_left_out() -> None:
    assert not any(" : Prove that the user logs in" in name for name in listed("--skip-tags", "ssh_mesh"))

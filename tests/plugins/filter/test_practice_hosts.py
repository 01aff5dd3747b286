"""Names, addresses and inventory of practice hosts."""

import pytest
from ansible.errors import AnsibleFilterError

from plugins.filter.practice_hosts import (
    Host,
    practice_hosts_image,
    practice_hosts_inventory,
    practice_hosts_known_hosts,
    practice_hosts_plan,
    practice_hosts_problems,
    practice_hosts_sudo_password_file,
)

NODES: list[Host] = [
    {"name": "node1", "groups": ["ps", "worker"]},
    {"name": "node2", "groups": ["worker"], "user": "ops"},
    {"name": "outsider"},
]
KEYS = ["ssh-ed25519 AAAA1 root@node1", "ssh-ed25519 AAAA2 root@node2", "ssh-ed25519 AAAA3 root@outsider"]


def plan() -> list[Host]:
    return practice_hosts_plan(NODES, "psfleet-0a1b2c3d-demo", "10.89.3.0/24", "bookworm")


def test_hosts_keep_their_order_and_get_addresses_of_their_network() -> None:
    assert [(host["container"], host["address"], host["user"]) for host in plan()] == [
        ("psfleet-0a1b2c3d-demo-node1", "10.89.3.11", "root"),
        ("psfleet-0a1b2c3d-demo-node2", "10.89.3.12", "ops"),
        ("psfleet-0a1b2c3d-demo-outsider", "10.89.3.13", "root"),
    ]


def test_the_hardware_address_of_a_host_follows_from_its_address() -> None:
    assert [host["mac_address"] for host in plan()][:2] == ["02:00:0a:59:03:0b", "02:00:0a:59:03:0c"]


def test_the_last_address_that_fits_is_not_the_broadcast_address() -> None:
    nodes: list[Host] = [{"name": f"node{number}"} for number in range(4)]
    assert practice_hosts_plan(nodes, "p", "10.0.0.0/28", "bookworm")[-1]["address"] == "10.0.0.14"
    with pytest.raises(AnsibleFilterError, match=r"has 5 nodes; the network p .* has too few addresses"):
        practice_hosts_plan([*nodes, {"name": "node4"}], "p", "10.0.0.0/28", "bookworm")


def test_groups_keep_the_order_of_the_nodes_and_nodes_without_groups_stay_outside_the_cluster() -> None:
    inventory = practice_hosts_inventory(plan(), KEYS, "/inventories/practice")
    jobs = inventory["all"]["children"]["tf_cluster"]["children"]
    assert {job: list(group["hosts"]) for job, group in jobs.items()} == {
        "ps": ["node1"],
        "worker": ["node1", "node2"],
    }
    assert list(inventory["all"]["hosts"]) == ["node1", "node2", "outsider"]


def test_a_host_has_its_own_variables_and_a_chief_is_in_its_group() -> None:
    nodes: list[Host] = [{"name": "node1", "groups": ["chief"], "vars": {"trainer_seed": 2}}]
    inventory = practice_hosts_inventory(
        practice_hosts_plan(nodes, "p", "10.0.0.0/24", "bookworm"), KEYS[:1], "/inventories/practice"
    )["all"]
    assert inventory["hosts"]["node1"]["trainer_seed"] == 2
    assert inventory["children"]["tf_cluster"]["children"]["chief"] == {"hosts": {"node1": {}}}


def test_a_new_host_at_an_old_address_has_another_control_path() -> None:
    def control_path(key: str) -> str:
        inventory = practice_hosts_inventory(plan()[:1], [key], "/inventories/practice")
        return str(inventory["all"]["hosts"]["node1"]["ansible_control_path"])

    assert control_path(KEYS[0]) != control_path(KEYS[1])


def test_known_hosts_lists_each_host_by_address_and_name_without_a_comment() -> None:
    assert practice_hosts_known_hosts(plan(), KEYS).splitlines()[1] == "10.89.3.12,node2 ssh-ed25519 AAAA2"


def test_a_host_with_its_own_ssh_port_has_it_in_inventory_and_known_hosts() -> None:
    hosts = practice_hosts_plan([{"name": "Beta-2", "ssh_port": 2200}], "p", "10.0.0.0/24", "bookworm")
    assert practice_hosts_known_hosts(hosts, KEYS[:1]) == (
        "[10.0.0.11]:2200,[beta-2]:2200 ssh-ed25519 AAAA1\n"
    )
    inventory = practice_hosts_inventory(hosts, KEYS[:1], "/inventories/practice")
    assert inventory["all"]["hosts"]["Beta-2"]["ansible_port"] == 2200


def test_a_password_is_looked_up_in_its_file_and_is_not_in_the_inventory() -> None:
    hosts = practice_hosts_plan(
        [{"name": "Alpha-1", "user": "ops", "sudo_password": True}, {"name": "b", "user": "ops"}],
        "p",
        "10.0.0.0/24",
        "bookworm",
    )
    variables = practice_hosts_inventory(hosts, KEYS[:2], "/inventories/practice")["all"]["hosts"]
    file = practice_hosts_sudo_password_file("Alpha-1", "/inventories/practice")
    assert file == "/inventories/practice/.ssh/Alpha-1.sudo_password"
    assert (
        variables["Alpha-1"]["ansible_become_password"]
        == f"{{{{ lookup('ansible.builtin.file', '{file}') }}}}"
    )
    assert "ansible_become_password" not in variables["b"]


def test_a_host_has_its_own_suite_or_the_default() -> None:
    hosts = practice_hosts_plan(
        [{"name": "a", "suite": "trixie"}, {"name": "b"}], "p", "10.0.0.0/24", "bookworm"
    )
    assert [host["suite"] for host in hosts] == ["trixie", "bookworm"]


def test_another_suite_recipe_or_package_gives_another_image() -> None:
    images = {
        practice_hosts_image("bookworm", "recipe", ["sudo"]),
        practice_hosts_image("trixie", "recipe", ["sudo"]),
        practice_hosts_image("bookworm", "another recipe", ["sudo"]),
        practice_hosts_image("bookworm", "recipe", ["sudo", "dbus"]),
    }
    assert len(images) == 4


@pytest.mark.parametrize(
    ("nodes", "scenario", "problem"),
    [
        ([], "demo", "practice_hosts_nodes is empty"),
        ([{"name": "Node_1"}], "demo", r"nodes\[0\].name is 'Node_1'; expected a hostname: a letter"),
        ([{"groups": []}], "demo", r"practice_hosts_nodes\[0\].name is ''"),
        ([{"name": "a"}, {"name": "a"}], "demo", r"nodes\[1\].name is 'a', which an earlier node has"),
        ([{"name": "Box-1"}, {"name": "box-1"}], "demo", "'box-1', which an earlier node has .capitals"),
        ([{"name": "box-"}], "demo", "name is 'box-'; expected a hostname"),
        ([{"name": "a" * 32}], "demo", "31 at most"),
        ([{"name": "a", "ssh_port": 70000}], "demo", r"\[0\].ssh_port is 70000; expected 1 to 65535"),
        ([{"name": "a", "sudo_password": True}], "demo", "sudo_password is true, but .user is root"),
        ([{"name": "a", "groups": ["boss"]}], "demo", "groups has 'boss'; expected only ps, worker, chief"),
        ([{"name": "a", "user": "a b"}], "demo", "user is 'a b'; expected a login name"),
        ([{"name": "a"}], "De mo", "practice_hosts_scenario is 'De mo'"),
    ],
)
def test_a_problem_names_the_variable_and_the_value(nodes: list[Host], scenario: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        assert practice_hosts_problems(nodes, scenario) == []


def test_good_input_has_no_problems() -> None:
    assert practice_hosts_problems([*NODES, {"name": "GPU-Box--01"}], "demo") == []

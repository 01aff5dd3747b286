from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from psfleet.inventory.mesh_addresses import mesh_address
from psfleet.inventory.problems import InventoryError
from psfleet.inventory.reading import read_inventory
from psfleet.run.cluster_facts import cluster_facts
from tests.psfleet.inventory.inventories import RULES, Hosts, inventory, problems
from trainer.contract.rules import BOOLEAN

ENCRYPTED = {"trainer_encryption": "wireguard"}
HOSTS: Hosts = {"a": {"ansible_host": "10.0.0.1"}, "b": {"trainer_address": "[2001:db8::2]"}}


def facts(**variables: object) -> dict[str, Any]:
    return cluster_facts(inventory(["a"], ["a", "b"], HOSTS, (), **variables))


def test_tasks_have_the_addresses_of_the_mesh_and_wireguard_those_of_the_inventory() -> None:
    shown = facts(**ENCRYPTED, trainer_encryption_port="4500")
    a, b = (mesh_address("psfleet", host) for host in "ab")
    assert shown["cluster_plan"]["ps_hosts"] == f"[{a}]:2222"
    assert shown["cluster_plan"]["worker_hosts"] == f"[{a}]:2223,[{b}]:2222"
    assert shown["cluster_mesh"] == {
        "port": 4500,
        "hosts": {
            "a": {"address": a, "endpoint": "10.0.0.1"},
            "b": {"address": b, "endpoint": "[2001:db8::2]"},
        },
    }


def test_the_plan_has_no_mesh_without_encryption() -> None:
    shown = facts()
    assert (shown["cluster_mesh"], shown["cluster_plan"]["ps_hosts"]) == ({}, "10.0.0.1:2222")
    assert shown["cluster_plan"]["hash"] != facts(**ENCRYPTED)["cluster_plan"]["hash"]


def test_each_host_has_its_own_address_in_the_network_of_its_cluster() -> None:
    addresses = {cluster: [mesh_address(cluster, host) for host in "abc"] for cluster in "xy"}
    networks = [{ip_network(f"{each}/64", strict=False) for each in found} for found in addresses.values()]
    assert [len({*found}) for found in addresses.values()] == [3, 3]
    assert len(networks[0]) == len(networks[1]) == 1
    assert networks[0] != networks[1]
    assert all(ip_address(each) in ip_network("fd00::/8") for found in addresses.values() for each in found)
    assert mesh_address("x", "A") == mesh_address("x", "a") == addresses["x"][0]


def test_encryption_has_one_valid_value_for_the_whole_cluster() -> None:
    assert problems(["a"], ["b"], trainer_encryption="tls") == [
        "trainer_encryption is 'tls'; expected one of none, wireguard"
    ]
    assert problems(["a"], ["b"], {"b": ENCRYPTED}) == [
        "trainer_encryption is 'none' on a, 'wireguard' on b; expected one value for the whole cluster"
    ]


def test_encryption_without_the_fence_is_refused() -> None:
    hosts = {"a": ENCRYPTED, "b": {**ENCRYPTED, "port_fence_enabled": "no"}}
    given = replace(inventory(["a"], ["b"], hosts), rules={**RULES, "port_fence_enabled": BOOLEAN})
    with pytest.raises(InventoryError) as caught:
        read_inventory(given)
    assert [problem.what for problem in caught.value.problems] == [
        "trainer_encryption is 'wireguard', and port_fence_enabled is false on b; expected true: the tasks "
        "listen on every address, and only the fence closes their ports to others"
    ]

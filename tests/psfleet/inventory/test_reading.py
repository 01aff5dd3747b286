from pathlib import Path

import pytest
import yaml

from psfleet.inventory.reading import read_inventory
from psfleet.run.settings import run_settings
from tests.psfleet.inventory.inventories import DEFAULTS, inventory, problems, read
from trainer.contract.model_files import MODEL_RULE

WRONG = yaml.safe_load(Path(__file__).with_name("wrong_values.yml").read_text(encoding="utf-8"))


def test_indices_follow_the_order_of_the_groups() -> None:
    plan = read(["b", "a"], ["c", "a", "d"])
    assert [(task.name, task.host) for task in plan.tasks] == [
        ("ps0", "b"),
        ("ps1", "a"),
        ("worker0", "c"),
        ("worker1", "a"),
        ("worker2", "d"),
    ]


def test_a_host_in_both_groups_has_two_ports_first_for_the_ps() -> None:
    plan = read(["a"], ["a", "b"])
    assert plan.ps_hosts == "a:2222"
    assert plan.worker_hosts == "a:2223,b:2222"


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "a"),
        ({"ansible_host": "10.0.0.1"}, "10.0.0.1"),
        ({"ansible_host": "10.0.0.1", "trainer_address": "lan.example"}, "lan.example"),
        ({"ansible_host": "fd00::1"}, "[fd00::1]"),  # ssh wants it bare, a port wants brackets
        ({"trainer_address": "[FD00:0::1]"}, "[fd00::1]"),
    ],
)
def test_the_address_of_a_host_is_trainer_address_or_ansible_host_or_its_name(
    variables: dict[str, object], address: str
) -> None:
    assert read(["a"], ["b"], {"a": variables}).tasks[0].address == address


@pytest.mark.parametrize(
    ("name", "expected", "value"),
    [
        (name, rule["expected"], value)
        for names, rule in WRONG.items()
        for name in names.split()
        for value in rule["values"]
    ],
)
def test_a_wrong_value_is_refused_with_the_expected_form(name: str, expected: str, value: object) -> None:
    told = problems(["a"], ["b"], {host: {name: value} for host in "ab"})
    assert told == [f"{name} is {value!r}; expected {expected.replace('<models>', MODEL_RULE.expected)}"]


def test_settings_of_hosts_may_differ() -> None:
    own = {"trainer_batch_size": "7", "trainer_data_dir": "/data", "trainer_base_port": 3000}
    plan, settings = read_inventory(inventory(["a"], ["b", "c"], {"b": own}, trainer_steps="40"))
    assert (settings["worker0"].batch_size, settings["worker1"].batch_size) == (7, 100)
    assert {task.port for task in plan.tasks if task.host == "b"} == {3000}
    assert {value.steps for value in settings.values()} == {40}


def test_all_other_settings_have_one_value_for_the_cluster() -> None:
    (problem,) = problems(["a"], ["b", "c"], {"b": {"trainer_steps": 5}, "c": {"trainer_steps": "5"}})
    assert problem == "trainer_steps is 2000 on a, 5 on b, c; expected one value for the whole cluster"


def test_each_task_gets_its_own_values() -> None:
    plan, settings = read_inventory(inventory(["a"], ["b", "c"], {"c": {"trainer_batch_size": 7}}))
    found = run_settings(plan, settings)
    assert found["cluster"]["batch_size"] == 100
    assert found["tasks"]["worker1"] == {**found["tasks"]["worker0"], "batch_size": 7}


def test_every_default_satisfies_its_own_rule() -> None:
    plan = read(["a"], ["b"], {}, **DEFAULTS)
    assert plan == read(["a"], ["b"]) == read(["a"], ["b"], trainer_user="rooter")

import pytest

from psfleet.inventory.reading import read_inventory
from psfleet.run.settings import run_settings
from tests.psfleet.inventory.inventories import DEFAULTS, inventory, problems, read
from trainer.contract.settings import TrainingSettings


def test_indices_follow_the_order_of_the_groups() -> None:
    plan = read(["b", "a"], ["c", "a", "d"])
    assert [(task.name, task.host) for task in plan.tasks] == [
        ("ps0", "b"),
        ("ps1", "a"),
        ("worker0", "c"),
        ("worker1", "a"),
        ("worker2", "d"),
    ]


def test_a_host_in_both_groups_takes_two_ports_in_the_order_ps_worker() -> None:
    plan = read(["a"], ["a", "b"])
    assert plan.ps_hosts == "a:2222"
    assert plan.worker_hosts == "a:2223,b:2222"


@pytest.mark.parametrize("name", ["trainer_base_port", "trainer_ps_port", "trainer_worker_port"])
@pytest.mark.parametrize("port", [0, 22, 1023, 70000, "abc", 2222.5, True])
def test_a_port_outside_of_the_range(name: str, port: object) -> None:
    (problem,) = problems(["a"], ["b"], {"a": {name: port}})
    assert problem.startswith(f"{name} is {port!r} on a; expected an integer from 1024 to 65535")


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
def test_where_the_others_reach_a_host(variables: dict[str, object], address: str) -> None:
    assert read(["a"], ["b"], {"a": variables}).tasks[0].address == address


@pytest.mark.parametrize("address", ["fd00::1", "10.0.0.1:2222", "two words", "[10.0.0.1]", 7])
def test_an_address_that_a_port_cannot_follow(address: object) -> None:
    (problem,) = problems(["a"], ["b"], {"a": {"trainer_address": address}})
    assert problem.startswith(f"trainer_address is {address!r} on a; expected")
    assert '"[fd00::1]"' in problem


@pytest.mark.parametrize("gpus", [[0, 0], [-1], ["a"], 0, "all", "X0", None, [True]])
def test_gpus_that_are_no_list_of_distinct_numbers(gpus: object) -> None:
    assert problems(["a"], ["b"], {"b": {"trainer_worker_gpus": gpus}})[0].startswith(
        "trainer_worker_gpus is "
    )


def test_tasks_do_not_run_as_root() -> None:
    assert "not root" in problems(["a"], ["b"], trainer_user="root")[0]
    assert read(["a"], ["b"], trainer_user="rooter")


@pytest.mark.parametrize("name", ["Psfleet", "my cluster", "a/b", "a@b", "a%b", "1st", "", "a" * 32, "a-b"])
def test_a_cluster_name_that_could_not_name_a_unit(name: str) -> None:
    assert "[a-z][a-z0-9]{0,30}" in problems(["a"], ["b"], trainer_cluster_name=name)[0]


@pytest.mark.parametrize("directory", ["metrics", "/", "/a b", "/a/%i", "/a/../b", None])
def test_a_directory_of_metrics_that_a_unit_could_not_name(directory: object) -> None:
    assert "or empty for none" in problems(["a"], ["b"], trainer_metrics_directory=directory)[0]


def test_hosts_may_differ_in_what_is_theirs() -> None:
    own = {"trainer_batch_size": "7", "trainer_data_dir": "/data", "trainer_base_port": 3000}
    plan, settings = read_inventory(inventory(["a"], ["b", "c"], {"b": own}, trainer_steps="40"))
    assert (settings["worker0"].batch_size, settings["worker1"].batch_size) == (7, 100)
    assert {task.port for task in plan.tasks if task.host == "b"} == {3000}
    assert {value.steps for value in settings.values()} == {40}


def test_the_cluster_has_one_value_of_everything_else() -> None:
    (problem,) = problems(["a"], ["b", "c"], {"b": {"trainer_steps": 5}, "c": {"trainer_steps": "5"}})
    assert problem == "trainer_steps is 2000 on a, 5 on b, c; expected one value for the whole cluster"


def test_flags_of_each_task() -> None:
    plan, settings = read_inventory(inventory(["a"], ["b", "c"], {"c": {"trainer_batch_size": 7}}))
    found = run_settings(plan, settings)
    assert found["cluster"]["batch_size"] == 100
    assert found["tasks"]["ps0"]["values"]["barrier_deadline_seconds"] == 120
    assert "batch_size" not in found["tasks"]["ps0"]["values"]
    flags = dict(flag.removeprefix("--").split("=") for flag in found["tasks"]["worker1"]["flags"].split())
    assert TrainingSettings.from_mapping(flags).as_dict() == found["tasks"]["worker1"]["values"]
    assert flags["batch_size"] == "7"


def test_every_default_obeys_its_own_rule() -> None:
    plan = read(["a"], ["b"], {}, **DEFAULTS)
    assert plan == read(["a"], ["b"])

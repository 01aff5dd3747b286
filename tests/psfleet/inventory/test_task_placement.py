"""Several tasks on a host: their ports, indices, GPUs and settings."""

import random
from collections.abc import Iterator

import pytest

from psfleet.inventory.problems import InventoryError
from psfleet.inventory.reading import read_inventory
from psfleet.inventory.requested_tasks import RequestedTask, tasks_rule
from tests.psfleet.inventory.inventories import Hosts, inventory, problems, read
from trainer.contract.plan import JOBS, ClusterPlan
from trainer.contract.rules import SettingsError, integer

PROGRAM = "train.py"


def ports(plan: ClusterPlan) -> dict[str, int]:
    return {task.name: task.port for task in plan.tasks}


def test_indices_of_several_tasks_continue_over_the_hosts() -> None:
    hosts: Hosts = {"a": {"trainer_worker_tasks": "2"}, "b": {"trainer_ps_tasks": 2}}
    plan = read(["b", "a"], ["a", "b"], hosts)
    assert [(task.name, task.host, task.port) for task in plan.tasks] == [
        ("ps0", "b", 2222),
        ("ps1", "b", 2223),
        ("ps2", "a", 2222),
        ("worker0", "a", 2223),
        ("worker1", "a", 2224),
        ("worker2", "b", 2224),
    ]


def test_the_hash_of_a_plan_with_one_task_on_each_host_has_not_changed() -> None:
    # Deployed plans are compared by hash: an unchanged inventory must keep its hash.
    assert read(["a"], ["a", "b"], {"a": {"trainer_worker_gpus": [1, 0]}}).hash == "96d4f4c054a3"


def test_a_host_with_every_job_assigns_its_ports_in_the_order_of_the_jobs() -> None:
    plan = read(["a"], ["a"], {"a": {"trainer_worker_tasks": 2}}, ["a"], trainer_program=PROGRAM)
    assert ports(plan) == {"ps0": 2222, "worker0": 2223, "worker1": 2224, "chief0": 2225}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"trainer_worker_port": 2300}, (2222, 2300, 2301)),  # the second counts on from the first's
        ({"trainer_worker_port": 2222}, (2223, 2222, 2224)),
        ({"trainer_ps_port": 2223}, (2223, 2222, 2224)),  # goes around what a task asks for
        ({"trainer_ps_port": 2300}, (2300, 2222, 2223)),
        ({"trainer_ps_port": "null", "trainer_worker_port": "2400"}, (2222, 2400, 2401)),
        ({"trainer_base_port": "3000"}, (3000, 3001, 3002)),
        ({"trainer_worker_tasks": [{"port": 2222}, {}]}, (2223, 2222, 2224)),
        ({"trainer_worker_tasks": [{}, {"port": "2222"}]}, (2223, 2224, 2222)),
        ({"trainer_worker_tasks": [{"port": 2301}, {}], "trainer_worker_port": 2300}, (2222, 2301, 2300)),
        ({"trainer_worker_tasks": [{"port": 2224}, {"port": 2222}]}, (2223, 2224, 2222)),
        ({"trainer_base_port": 65533}, (65533, 65534, 65535)),
    ],
)
def test_explicit_ports_may_be_anywhere(variables: dict[str, object], expected: tuple[int, ...]) -> None:
    plan = read(["a"], ["a"], {"a": {"trainer_worker_tasks": 2, **variables}})
    assert tuple(task.port for task in plan.tasks) == expected


def test_ports_never_collide_on_any_placement() -> None:
    chosen = random.Random(7)
    for _ in range(200):
        asked = iter(chosen.sample(range(2222, 2234), 12))  # each is asked for once at most

        def some_tasks(asked: Iterator[int] = asked) -> list[dict[str, int]]:
            count = chosen.randint(1, 4)
            return [{"port": next(asked)} if chosen.random() < 0.4 else {} for _ in range(count)]

        ps, worker = some_tasks(), some_tasks()
        own: dict[str, object] = {"trainer_ps_tasks": ps, "trainer_worker_tasks": worker}
        own |= {f"trainer_{job}_port": next(asked) for job in JOBS if chosen.random() < 0.4}
        plan = read(["a"], ["a"], {"a": own}, ["a"], trainer_program=PROGRAM)
        found = [task.port for task in plan.tasks]
        assert len(found) == len(ps) + len(worker) + 1
        assert len(set(found)) == len(found), (own, found)
        assert {task["port"] for task in [*ps, *worker] if task} <= set(found)


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        (
            {"trainer_worker_tasks": [{"port": 2300}, {"port": 2300}]},
            "worker0 and worker1 on a have port 2300",
        ),
        (
            {"trainer_worker_tasks": [{"port": 2300}], "trainer_ps_port": 2300},
            "ps0 and worker0 on a have port",
        ),
        (
            {"trainer_ps_port": 2300, "trainer_worker_port": "2300"},
            "ps0 and worker0 on a have port 2300; expected one each",
        ),
        ({"trainer_worker_tasks": 3, "trainer_base_port": 65533}, "worker2 on a would get port 65536"),
    ],
)
def test_a_port_of_two_tasks_or_above_the_range_is_refused(variables: dict[str, object], what: str) -> None:
    assert problems(["a"], ["a"], {"a": variables})[0].startswith(what)


def test_explicit_indices_are_kept_and_free_ones_are_assigned_in_order() -> None:
    hosts: Hosts = {
        "a": {"trainer_worker_tasks": [{"index": 3}, {}]},
        "b": {"trainer_worker_tasks": [{"index": "0"}]},
    }
    plan = read(["a"], ["a", "b", "c"], hosts)
    assert [(task.name, task.host) for task in plan.tasks_of("worker")] == [
        ("worker0", "b"),
        ("worker1", "a"),
        ("worker2", "c"),
        ("worker3", "a"),
    ]
    assert plan.chief.host == "b"


@pytest.mark.parametrize(
    ("of_a", "of_b", "seen"),
    [
        ([{"index": 1}, {"index": 1}], [{}], "1 2 times on a"),
        ([{"index": 0}, {}], [{"index": 0}], "0 2 times on a, b"),
        ([{"index": 0}, {"index": 1}], [{"index": 3}], "0 on a, 1 on a, 3 on b"),
    ],
)
def test_a_repeated_index_or_a_gap_is_refused(of_a: object, of_b: object, seen: str) -> None:
    hosts = {"a": {"trainer_worker_tasks": of_a}, "b": {"trainer_worker_tasks": of_b}}
    assert problems(["a"], ["a", "b"], hosts) == [
        f"the indices in trainer_worker_tasks are {seen}; expected each index from 0 to 2 once, because "
        "there are 3 tasks of worker"
    ]


def test_gpus_are_divided_evenly_in_order_and_a_task_may_have_its_own() -> None:
    hosts: Hosts = {
        "a": {"trainer_worker_tasks": 2, "trainer_worker_gpus": "[3, 1, 0, 2]"},
        "b": {"trainer_worker_tasks": [{"gpus": [7]}, {}, {}], "trainer_worker_gpus": [0, 1]},
        "c": {"trainer_worker_tasks": [{"gpus": []}, {"gpus": "[0]"}]},
    }
    plan = read(["a"], ["a", "b", "c"], hosts)
    assert [task.gpus for task in plan.tasks] == [(), (3, 1), (0, 2), (7,), (0,), (1,), (), (0,)]


def test_a_gpu_of_two_tasks_of_one_host_is_refused() -> None:
    twice = {"trainer_worker_tasks": [{"gpus": [0]}, {"gpus": [1, 0]}]}
    once = {"trainer_worker_tasks": [{"gpus": [0]}]}
    assert problems(["a"], ["b", "a"], {"a": twice, "b": once}) == [
        "worker1 and worker2 on a have GPU 0; expected one task for each GPU"
    ]


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"trainer_ps_gpus": [1]}, "trainer_ps_gpus of a is [1]"),
        ({"trainer_ps_gpus": "0,1", "trainer_ps_tasks": 2}, "trainer_ps_gpus of a is [0, 1]"),
        ({"trainer_ps_tasks": [{"gpus": [0]}]}, "trainer_ps_tasks of a asks for GPUs"),
    ],
)
def test_a_ps_has_gpus_only_if_trainer_ps_may_use_gpus_is_true(
    variables: dict[str, object], found: str
) -> None:
    expected = "expected none, because a ps leaves them to the workers, or trainer_ps_may_use_gpus: true"
    assert problems(["a"], ["a"], {"a": variables}) == [f"{found}; {expected}"]
    plan = read(["a"], ["a"], {"a": variables}, trainer_ps_may_use_gpus="true")
    assert sum((task.gpus for task in plan.tasks_of("ps")), ()) != ()
    assert plan.tasks_of("worker")[0].gpus == ()


def test_gpus_of_the_ps_are_divided_like_those_of_the_workers() -> None:
    hosts: Hosts = {
        "a": {"trainer_ps_tasks": 2, "trainer_ps_gpus": [3, 1], "trainer_worker_gpus": [0, 2]},
        "b": {"trainer_ps_tasks": [{"gpus": [7]}, {}]},
    }
    plan = read(["a", "b"], ["a"], hosts, trainer_ps_may_use_gpus=True)
    assert [task.gpus for task in plan.tasks] == [(3,), (1,), (7,), (), (0, 2)]
    (uneven,) = problems(
        ["a"], ["a"], {"a": {"trainer_ps_tasks": 2, "trainer_ps_gpus": [1]}}, trainer_ps_may_use_gpus=True
    )
    assert uneven.startswith(
        "trainer_ps_gpus [1] of a are 1 GPUs for 2 ps; expected the same number for each"
    )


@pytest.mark.parametrize(
    ("of_worker", "variable"),
    [({"trainer_worker_gpus": [0]}, "trainer_worker_gpus"), ({"trainer_worker_tasks": [{"gpus": [0]}]}, "")],
)
def test_a_gpu_of_a_ps_and_of_a_worker_is_refused(of_worker: dict[str, object], variable: str) -> None:
    both = {"trainer_ps_gpus": [0], **of_worker}
    with pytest.raises(InventoryError) as caught:
        read_inventory(inventory(["a"], ["a"], {"a": both}, trainer_ps_may_use_gpus=True))
    (problem,) = caught.value.problems
    assert problem.what == "ps0 and worker0 on a have GPU 0; expected one task for each GPU"
    assert problem.variable == (variable or "trainer_worker_tasks")


def test_a_value_of_a_task_overrides_the_value_of_its_host() -> None:
    own = {
        "trainer_worker_tasks": [{"batch_size": 32, "threads": "2", "data_dir": "/data"}, {"threads": None}],
        "trainer_batch_size": 64,
        "trainer_threads": 8,
    }
    _, settings = read_inventory(inventory(["a"], ["a", "b"], {"a": own}))
    seen = [
        (of.batch_size, of.threads, of.data_dir)
        for of in map(settings.get, ("worker0", "worker1", "worker2"))
        if of
    ]
    assert seen == [(32, 2, "/data"), (64, None, ""), (100, None, "")]


@pytest.mark.parametrize("number", [0, -1, "many", 1.5, True, None, "", [], {}, 1025])
@pytest.mark.parametrize("name", ["trainer_ps_tasks", "trainer_worker_tasks"])
def test_an_invalid_number_of_tasks_is_refused(name: str, number: object) -> None:
    (problem,) = problems(["a"], ["a"], {"a": {name: number}})
    expected = "expected an integer from 1 to 1024, or a list with a mapping for each task, of index, port"
    assert problem.startswith(f"{name} is {number!r}; {expected}")


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"index": -1}, ".index is -1; expected an integer >= 0"),
        ({"port": 22}, ".port is 22; expected an integer from 1024 to 65535"),
        ({"port": None}, ".port is None; expected an integer from 1024 to 65535"),
        ({"gpus": [0, 0]}, ".gpus is [0, 0]; expected a list of distinct GPU numbers >= 0, such as [0, 1]"),
        ({"batch_size": 0}, ".batch_size is 0; expected an integer >= 1"),
        ({"threads": 0}, ".threads is 0; expected an integer >= 1, or null"),
        (
            {"gpu_memory_fraction": 1.5},
            ".gpu_memory_fraction is 1.5; expected a number > 0 and <= 1, or null",
        ),
        ({"data_dir": "mnist"}, ".data_dir is 'mnist'; expected an absolute path on the hosts"),
    ],
)
def test_a_task_with_an_invalid_field_is_refused(task: object, problem: str) -> None:
    (found,) = problems(["a"], ["a"], {"a": {"trainer_worker_tasks": [{}, task]}})
    assert found.startswith(f"trainer_worker_tasks[1]{problem}")


def test_a_list_of_tasks_is_accepted_or_each_invalid_field_is_named() -> None:
    rule = tasks_rule("worker", {"index": integer(0), "batch_size": integer(1)})
    assert rule.convert("2") == (RequestedTask(), RequestedTask())
    seventh = RequestedTask(7, settings={"batch_size": 3})
    assert rule.convert([{"index": "7", "batch_size": 3}, {}]) == (seventh, RequestedTask())
    with pytest.raises(SettingsError) as caught:
        rule.convert([3, {"index": -1, "gpu": 0}, {"bacth_size": 7}, {"colour": "red"}])
    assert [str(problem) for problem in caught.value.problems] == [
        "[0] is 3; expected a mapping of index, batch_size, or {} for a task like its host",
        "[1].index is -1; expected an integer >= 0",
        "[1].gpu is 0; expected only index, batch_size in a task (write gpus, a list such as [0])",
        "[2].bacth_size is 7; expected only index, batch_size in a task (did you mean batch_size?)",
        "[3].colour is 'red'; expected only index, batch_size in a task",
    ]
    one_for_each = "or a list with a mapping for each task, of index, batch_size"
    assert rule.expected == f"an integer from 1 to 1024, {one_for_each}"
    with pytest.raises(ValueError, match=r"\[\]"):
        rule.convert([])


def test_all_invalid_fields_are_reported_at_once_and_equal_ones_together() -> None:
    wrong = {"trainer_worker_tasks": [{"batch_size": 0, "port": 1}]}
    hosts = {name: {**wrong, "trainer_ps_tasks": [{"batch_size": 7}]} for name in "ab"}
    assert problems(["a", "b"], ["a", "b", "c"], hosts) == [
        "trainer_ps_tasks[0].batch_size is 7 on a, b; expected only index, port, gpus in a task (a ps takes "
        "no steps)",
        "trainer_worker_tasks[0].batch_size is 0 on a, b; expected an integer >= 1",
        "trainer_worker_tasks[0].port is 1 on a, b; expected an integer from 1024 to 65535",
    ]

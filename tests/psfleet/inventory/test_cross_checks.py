"""Rules over several variables or groups: replications, programs, the chief, the data."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from psfleet.inventory.reading import data_directories, read_inventory
from tests.psfleet.inventory.inventories import Hosts, inventory, problems, read

PROGRAM = "train.py"


def test_l1_regularization_without_ftrl_is_refused() -> None:
    expected = "expected 0, or trainer_optimizer ftrl"
    assert problems(["a"], ["b"], trainer_l1_regularization=0.5, trainer_optimizer="adagrad") == [
        f"trainer_l1_regularization is 0.5 with trainer_optimizer 'adagrad'; {expected}"
    ]
    assert read(["a"], ["b"], trainer_l1_regularization=0.5, trainer_optimizer="ftrl")


@pytest.mark.parametrize(
    ("model", "metrics"),
    [
        ("mnist_mlp", "accuracy, cross_entropy"),
        ("wide_deep", "auc, log_loss"),
        ("linear", "loss, weight, bias"),
    ],
)
def test_a_condition_with_a_metric_that_the_model_lacks_is_refused_with_those_that_there_are(
    model: str, metrics: str
) -> None:
    given: Mapping[str, object] = {"trainer_model": model, "trainer_evaluate_every_steps": 100}
    assert problems(["a"], ["b"], {}, [], trainer_stop_when="f1<0.25", **given) == [
        f"trainer_stop_when is 'f1 < 0.25', and trainer_model {model!r} has no such metric; "
        f"expected one of {metrics}"
    ]
    for metric in metrics.split(", "):
        assert read(["a"], ["b"], {}, [], trainer_stop_when=f" {metric}  >= .5", **given)


def test_a_condition_without_evaluations_is_refused() -> None:
    assert problems(["a"], ["b"], trainer_stop_when="accuracy > 0.9") == [
        "trainer_stop_when is 'accuracy > 0.9' with trainer_evaluate_every_steps 0, so that no evaluation "
        "decides; expected an empty text, or trainer_evaluate_every_steps above 0"
    ]


def test_replicas_to_aggregate_above_the_number_of_workers_are_refused() -> None:
    sync = {"trainer_replication": "sync", "trainer_replicas_to_aggregate": "4"}
    assert problems(["a"], ["a", "b"], {"b": {"trainer_worker_tasks": 2}}, **sync) == [
        "trainer_replicas_to_aggregate is 4; expected at most 3, the number of workers"
    ]
    assert read(["a"], ["a", "b"], {"b": {"trainer_worker_tasks": 3}}, **sync)
    assert "expected an integer >= 1" in problems(["a"], ["b"], trainer_replicas_to_aggregate=0)[0]


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("optimizer", "momentum", "one of null, adagrad, sgd, adam, ftrl"),
        ("push_every", 4, "1"),
        ("pull_every", 4, "one of null, 1"),
        ("replication", "in_graph", "one of async, sync, local"),
        ("staleness", "damped", "plain"),
    ],
)
def test_what_does_not_work_with_tables_is_refused_before_a_host_is_reached(
    setting: str, value: object, expected: str
) -> None:
    given: Mapping[str, object] = {f"trainer_{setting}": value}
    has = "trainer_model 'wide_deep' has tables, whose rows are looked up for each batch"
    assert problems(["a"], ["b"], {}, [], trainer_model="wide_deep", **given) == [
        f"trainer_{setting} is {value!r}, and {has}; expected {expected}"
    ]
    assert read(["a"], ["b"], {}, [], trainer_model="wide_deep")
    assert read(["a"], ["b"], {}, [], **given)


@pytest.mark.parametrize(
    ("model", "replication", "why"),
    [
        ("wide_deep", "sync", "in which all ps are at one step; expected all, or trainer_replication async"),
        ("dlrm", "local", "which has no ps; expected all, or trainer_replication async"),
        ("cnn", "async", "which has no tables; expected all"),
    ],
)
def test_a_lost_ps_that_cannot_restore_alone_is_refused(model: str, replication: str, why: str) -> None:
    given: Mapping[str, object] = {"trainer_model": model, "trainer_replication": replication}
    refused = f"model {model!r}" if replication == "async" else f"replication {replication!r}"
    assert problems(["a"], ["b"], {}, [], trainer_ps_recovery="partial", **given) == [
        f"trainer_ps_recovery is 'partial' with trainer_{refused}, {why}"
    ]
    assert read(["a"], ["b"], {}, [], trainer_ps_recovery="all", **given)
    assert read(["a"], ["b"], {}, [], trainer_ps_recovery="partial", trainer_model="wide_deep")


def test_clicks_are_not_generated_for_existing_servers() -> None:
    given: Mapping[str, object] = {"trainer_model": "wide_deep", "trainer_existing_servers": True}
    assert problems(["a"], ["b", "c"], {"c": {"trainer_data_dir": "/clicks"}}, [], **given) == [
        "trainer_existing_servers is true, and b has no trainer_data_dir: clicks are only generated in the "
        "process that has the graph, not with in_graph, nor with trainer_existing_servers; expected false, "
        "or files of clicks in trainer_data_dir or trainer_data_source"
    ]
    assert read(["a"], ["b"], {}, [], trainer_data_dir="/clicks", **given)


def test_a_success_policy_above_the_number_of_workers_is_refused() -> None:
    assert problems(["a"], ["a", "b"], {}, training_run_success="3") == [
        "training_run_success is 3; expected at most 2, the number of workers"
    ]
    for policy in ("all_workers", "chief", 2):
        assert read(["a"], ["a", "b"], {}, training_run_success=policy)
    assert (
        "expected one value for the whole cluster"
        in problems(["a"], ["b"], {"a": {"training_run_success": 1}, "b": {"training_run_success": "chief"}})[
            0
        ]
    )


def test_a_group_chief_needs_a_program_and_exactly_one_host() -> None:
    assert problems(["a"], ["b"], {}, ["c"]) == [
        "the group chief holds c, and trainer_program is empty; expected no such group: worker0 is the chief "
        "of the trainer's own models"
    ]
    assert problems(["a"], ["b"], {}, ["c", "d"], trainer_program=PROGRAM) == [
        "the group chief holds 2 hosts, c, d; expected one"
    ]
    plan = read(["a"], ["b"], {"c": {"trainer_chief_port": 2300}}, ["c"], trainer_program=PROGRAM)
    assert (plan.tasks[-1].name, plan.tasks[-1].target) == ("chief0", "c:2300")


def test_a_group_evaluator_needs_a_program_a_chief_and_exactly_one_host() -> None:
    assert problems(["a"], ["b"], evaluator=["d"]) == [
        "the group evaluator holds d, and trainer_program is empty; expected no such group: psfleet itself "
        "evaluates the trainer's own models"
    ]
    assert problems(["a"], ["b"], evaluator=["d"], trainer_program=PROGRAM) == [
        "the group evaluator holds d, and there is no chief; expected a host in the group chief, whose "
        "checkpoints the evaluator evaluates"
    ]
    assert problems(["a"], ["b"], {}, ["c"], evaluator=["c", "d"], trainer_program=PROGRAM) == [
        "the group evaluator holds 2 hosts, c, d; expected one"
    ]
    plan = read(["a"], ["b"], {}, ["c"], evaluator=["c"], trainer_program=PROGRAM)
    assert [(task.name, task.target) for task in plan.tasks[-2:]] == [
        ("chief0", "c:2222"),
        ("evaluator0", "c:2223"),
    ]


def test_a_program_may_do_without_ps_but_not_without_workers() -> None:
    assert [task.name for task in read([], ["a"], trainer_program=PROGRAM).tasks] == ["worker0"]
    assert problems(["a"], [], {}, ["a"], trainer_program=PROGRAM) == [
        "there is no group worker; expected a child group worker of tf_cluster with one host or more"
    ]
    assert "there is no group ps" in problems([], ["a"], trainer_replication="local")[0]


def test_carried_data_are_read_in_the_hosts_data_directory() -> None:
    hosts: Hosts = {
        "b": {"trainer_data_dir": "/srv/mnist"},
        "c": {"trainer_worker_tasks": [{"data_dir": "/d"}]},
    }
    carried = {"trainer_data_source": "mnist", "trainer_install_directory": "/opt/other"}
    plan, settings = read_inventory(inventory(["a"], ["a", "b", "c"], hosts, **carried))
    assert [settings[task.name].data_dir for task in plan.tasks_of("worker")] == [
        "/opt/other/data",
        "/srv/mnist",
        "/d",
    ]


def test_data_that_are_not_carried_may_be_in_two_folders_of_a_host() -> None:
    of_hosts = {
        "a": {"trainer_worker_tasks": [{"data_dir": "/d"}, {"data_dir": "/e"}, {"data_dir": "/d"}, {}]}
    }
    plan, settings = read_inventory(inventory(["a"], ["a", "b"], of_hosts))
    assert data_directories(plan, settings) == {"a": ["/d", "/e"]}


@pytest.mark.parametrize("directory", ["/home/me/mnist", "/root", "/tmp/mnist/", "/var/run/mnist"])
def test_a_data_directory_that_tasks_cannot_see_is_refused(directory: str) -> None:
    unseen = "/home, /root, /run, /var/run, /var/spool, /tmp, /var/tmp"
    expected = f"expected one outside of {unseen}, which tasks do not see"
    of_host = {"a": {"trainer_data_dir": directory, "trainer_worker_tasks": 2}}
    assert problems(["a"], ["a"], of_host) == [f"the data_dir of a is {directory!r}; {expected}"]
    of_task = {"a": {"trainer_worker_tasks": [{"data_dir": directory}]}}
    assert problems(["a"], ["a"], of_task) == [f"the data_dir of a is {directory!r}; {expected}"]
    assert read(["a"], ["b"], {"a": {"trainer_data_dir": directory}}, trainer_data_dir="/homes/mnist")


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (["--layers", 3, 0.5], ["--layers", "3", "0.5"]),
        ("--name 'two words'", ["--name", "two words"]),
        ([], []),
    ],
)
def test_arguments_of_a_program_are_converted_to_text(given: object, arguments: list[str]) -> None:
    values = inventory(["a"], ["b"], trainer_program_arguments=given).converted[0]["a"]
    assert values["trainer_program_arguments"] == arguments


def test_arguments_are_a_list_except_on_the_command_line() -> None:
    name, text = "trainer_program_arguments", "--layers 3 --name 'two words'"
    (told,) = problems(["a"], ["b"], trainer_program_arguments=text)
    line = 'trainer_program_arguments: ["--layers", "3", "--name", "two words"]'
    assert told == f'{name} is the text "{text}"; expected a list: {line}'
    given = inventory(["a"], ["b"], trainer_program_arguments=text)
    assert read_inventory(replace(given, command_line={name: text}))


def test_arguments_with_unknown_or_empty_placeholders_are_refused() -> None:
    name = "trainer_program_arguments"
    (told,) = problems(["a"], ["b"], trainer_program_arguments=["--data={datadir}"])
    expected = r"expected {data_dir}, or \{datadir} to pass it on as it is"
    assert told == f"{name} has {{datadir}}, which is no placeholder; {expected}"
    (told,) = problems(["a"], ["b"], trainer_program_arguments=["--workers={workers}", "{job_name}"])
    assert told.startswith(f"{name} has {{workers}}, which is no placeholder; expected {{worker_hosts}},")
    given = ["--data={data_dir}", '{"a": 1}', "{epoch}"]
    (told,) = problems(["a"], ["b"], trainer_program_arguments=given)
    assert told.startswith(f"{name} has {{data_dir}}, and worker0 has none; expected trainer_data_source,")
    for where in ({"trainer_data_dir": "/data"}, {"trainer_data_source": "~/mnist"}):
        assert read(["a"], ["b"], dict.fromkeys("ab", where), trainer_program_arguments=given)


@pytest.mark.parametrize("host", ["a", "b"])
def test_all_settings_of_the_program_apply_to_the_whole_cluster(host: str) -> None:
    (problem,) = problems(["a"], ["b"], {host: {"trainer_program": "x.py"}})
    assert "expected one value for the whole cluster" in problem


def test_the_model_partition_can_be_trained_with_existing_servers() -> None:
    assert read(["a"], ["b", "c"], trainer_model="partition", trainer_existing_servers=True)

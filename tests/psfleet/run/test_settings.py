from typing import Any

import pytest

from psfleet.run.settings import (
    can_resize,
    carried_model,
    older_model_note,
    resumed_settings,
    run_program,
    run_settings,
    with_requirements_of_today,
)
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.contract.settings import TrainingSettings

PLAN = ClusterPlan(
    "psfleet",
    (PlannedTask("ps", 0, "n1", "10.0.0.1", 2222), PlannedTask("worker", 0, "n2", "10.0.0.2", 2222)),
)
PROGRAM = {
    "name": "",
    "source": "/home/me/train.py",
    "entry": "train.py",
    "arguments": ["--rate", "0.1"],
    "environment": {"A": "1"},
    "flags": True,
    "observed": True,
    "tensorflow1": True,
    "end_deadline_minutes": 60,
    "collect": ["results"],
    "requirements": "/home/me/requirements.txt",
    "packages": {"key": "0123456789ab"},
    "release": "abc",
}


def settings(program: dict[str, Any] | None = None, **values: object) -> dict[str, Any]:
    of_all = TrainingSettings.from_mapping(values)
    return run_settings(PLAN, {"ps0": of_all, "worker0": of_all}, run_program(program or {}, "/opt/psfleet"))


def test_every_task_gets_all_settings() -> None:
    tasks = settings(model="linear", threads=2)["tasks"]
    assert tasks == dict.fromkeys(("ps0", "worker0"), TrainingSettings("linear", threads=2).as_dict())


def test_a_run_has_the_tasks_of_its_replication() -> None:
    assert list(settings(replication="local")["tasks"]) == ["worker0"]
    assert list(settings()["tasks"]) == ["ps0", "worker0"]


def test_each_task_keeps_its_own_settings_and_a_server_has_those_of_its_worker() -> None:
    plan = ClusterPlan("psfleet", (*PLAN.tasks, PlannedTask("worker", 1, "n3", "10.0.0.3", 2222)))

    def run_with(*threads: int) -> dict[str, Any]:
        own = (TrainingSettings.from_mapping({"existing_servers": True, "threads": each}) for each in threads)
        return run_settings(plan, dict(zip(("ps0", "worker0", "worker1"), own, strict=True)))

    def threads(run: dict[str, Any]) -> dict[str, int]:
        return {name: told["threads"] for name, told in run["tasks"].items()}

    begun, today = run_with(1, 2, 3), run_with(4, 5, 6)
    assert threads(begun) == {"ps0": 1, "worker0": 2, "worker1": 3, "server0": 2, "server1": 3}
    assert resumed_settings(plan, begun, today, chosen=()) == begun
    assert threads(resumed_settings(plan, begun, today, chosen=["threads"])) == threads(today)


def test_the_settings_contain_the_path_of_the_program_on_the_hosts() -> None:
    assert settings(PROGRAM)["program"] == {
        "name": "",
        "release": "abc",
        "file": "/opt/psfleet/programs/abc/train.py",
        "arguments": ["--rate", "0.1"],
        "environment": {"A": "1"},
        "flags": True,
        "observed": True,
        "requirements": "0123456789ab",
        "tensorflow1": True,
        "end_deadline_minutes": 60,
        "collect": ["results"],
    }
    assert settings()["program"] is None


def test_a_resumed_run_keeps_its_tasks_and_replication() -> None:
    begun, today = settings(batch_size=10), settings(replication="local", steps=9999)
    resumed = resumed_settings(PLAN, begun, today, chosen=["steps"])
    assert list(resumed["tasks"]) == ["ps0", "worker0"]
    assert resumed["tasks"]["worker0"] == TrainingSettings(batch_size=10, steps=9999).as_dict()


def test_a_run_of_an_older_release_can_be_resumed() -> None:
    begun, today = settings(model="linear"), settings()
    del begun["program"]
    for name in ("replication", "threads"):
        del begun["cluster"][name]
    begun["tasks"]["ps0"] = {"barrier_deadline_seconds": 5.0}
    resumed = resumed_settings(PLAN, begun, today, chosen=())
    assert resumed["cluster"]["replication"] == "async"
    assert resumed["tasks"]["ps0"] == TrainingSettings(barrier_deadline_seconds=5.0).as_dict()


def test_a_run_whose_settings_are_values_and_flags_is_refused_with_what_to_do() -> None:
    begun, today = settings(), settings()
    begun["tasks"] = {name: {"values": values, "flags": ""} for name, values in begun["tasks"].items()}
    with pytest.raises(ValueError, match="an older release of psfleet began it; begin a new run"):
        resumed_settings(PLAN, begun, today, chosen=())


def test_only_newly_chosen_settings_replace_those_of_a_resumed_run() -> None:
    begun = settings(model="linear", steps=9000)
    today = settings(model="linear", steps=9999, batch_size=7, seed=8)
    resumed = resumed_settings(PLAN, begun, today, chosen=["steps", "seed", "run_id"])
    assert (resumed["cluster"]["steps"], resumed["cluster"]["seed"]) == (9999, 8)
    assert resumed["cluster"]["batch_size"] == 100
    assert resumed["tasks"]["worker0"]["steps"] == 9999


def test_a_resumed_run_with_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="it trains linear, and a run keeps its model"):
        resumed_settings(PLAN, settings(model="linear"), settings(model="mnist_mlp"), chosen=["model"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replication", "sync"),
        ("replicas_to_aggregate", 2),
        ("shard_data", True),
        ("existing_servers", True),
        ("push_every", 2),
        ("staleness", "damped"),
        ("hidden_units", 7),
        ("activation", "relu"),
    ],
)
def test_a_resumed_run_with_another_kind_of_training_is_refused(name: str, value: object) -> None:
    today = run_settings(
        PLAN, dict.fromkeys(["ps0", "worker0"], TrainingSettings.from_mapping({name: value}))
    )
    with pytest.raises(ValueError, match=f"it began with {name} .*, and a run keeps its {name}"):
        resumed_settings(PLAN, settings(), today, chosen=[name])


def test_a_resumed_run_keeps_its_program_if_the_inventory_has_another() -> None:
    begun, today = settings(PROGRAM), settings({**PROGRAM, "release": "def", "arguments": []})
    assert resumed_settings(PLAN, begun, today, chosen=()) == begun
    assert resumed_settings(PLAN, begun, settings(), chosen=()) == begun


def test_a_resumed_program_gets_the_packages_that_the_inventory_names_today() -> None:
    begun = {"name": "clicks", "release": "abc", "requirements": "0" * 12}
    programs = [{"name": "", "packages": {}}, {"name": "clicks", "packages": {"key": "1" * 12}}]
    assert with_requirements_of_today(begun, programs) == {**begun, "requirements": "1" * 12}
    assert with_requirements_of_today(begun, programs[:1]) == begun
    assert with_requirements_of_today(begun, [{"name": "clicks", "packages": {}}]) == {
        **begun,
        "requirements": "",
    }
    assert with_requirements_of_today(None, programs) is None


def test_a_resumed_run_of_an_older_release_keeps_its_program() -> None:
    begun = settings(PROGRAM)
    for name in ("name", "collect", "end_deadline_minutes"):
        del begun["program"][name]
    resumed = resumed_settings(PLAN, begun, settings(PROGRAM), chosen=["program"])["program"]
    assert resumed == settings(PROGRAM)["program"] | {"collect": []}
    with pytest.raises(ValueError, match=r"program is clicks, train\.py"):
        resumed_settings(PLAN, begun, settings(CLICKS), chosen=["program"])


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ("main.py", "'main.py' is not an object"),
        ({"release": "abc"}, "file is missing; arguments is missing; flags is missing; observed is missing"),
        (
            {**PROGRAM, "file": "/x", "collect": "all"},
            "collect is 'all'; expected a list of entries, each a text",
        ),
    ],
)
def test_a_run_with_a_damaged_program_is_not_resumed(damaged: Any, said: str) -> None:  # noqa: ANN401
    begun = settings(PROGRAM) | {"program": damaged}
    with pytest.raises(ValueError, match=f"^{said}$"):
        resumed_settings(PLAN, begun, settings(PROGRAM), chosen=())


def test_arguments_and_environment_of_a_resumed_program_may_be_changed() -> None:
    new = {"arguments": ["--rate", "0.01"], "environment": {"A": "2"}}
    begun, today = settings(PROGRAM), settings({**PROGRAM, **new})
    chosen = ["program", "program_arguments", "program_environment"]
    assert resumed_settings(PLAN, begun, today, chosen)["program"] == {**begun["program"], **new}
    assert resumed_settings(PLAN, begun, today, chosen[:1]) == begun


OTHER = {**PROGRAM, "release": "def"}
CLICKS = {**PROGRAM, "name": "clicks"}


@pytest.mark.parametrize(
    ("begun", "today", "words"),
    [
        (PROGRAM, None, r"it runs train.py \(release abc\), and a run keeps its program"),
        (
            PROGRAM,
            OTHER,
            r"\(release abc\), and a run keeps its program; .* now: begin a new run, without run_id",
        ),
        (CLICKS, {**CLICKS, "name": "mnist"}, r"clicks, train.py .*; program is mnist, train.py .* now"),
        (None, PROGRAM, r"trainer_program is train.py \(release abc\) now"),
    ],
)
def test_a_resumed_run_with_another_program_is_refused(
    begun: dict[str, Any] | None, today: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        resumed_settings(PLAN, settings(begun), settings(today), chosen=["program"])


def test_a_resumed_run_keeps_its_success_policy_unless_a_new_one_is_given() -> None:
    begun, today = settings() | {"success": 1}, settings() | {"success": "chief"}
    assert resumed_settings(PLAN, begun, today, chosen=())["success"] == 1
    assert resumed_settings(PLAN, begun, today, chosen=["training_run_success"])["success"] == "chief"
    older = {name: value for name, value in begun.items() if name != "success"}
    assert resumed_settings(PLAN, older, today, chosen=())["success"] == "all_workers"


@pytest.mark.parametrize(
    ("given", "can"),
    [
        ({}, True),
        ({"replication": "sync"}, True),
        ({"replication": "in_graph"}, False),
        ({"model": "partition"}, False),
    ],
)
def test_only_runs_of_shared_models_can_be_resized(given: dict[str, Any], can: bool) -> None:
    assert can_resize(settings(**given)) is can
    assert not can_resize(settings(**given) | {"program": {"file": "x"}})


def test_a_resumed_run_with_too_few_workers_for_its_steps_is_refused() -> None:
    begun = settings(replication="sync", replicas_to_aggregate=len(PLAN.tasks_of("worker")) + 1)
    with pytest.raises(ValueError, match=r"expected at most 1, the number of workers"):
        resumed_settings(PLAN, begun, begun, chosen=())


OWN = "/opt/psfleet/programs/{}/mine.py"
CARD = {"learning_rates": {"sgd": 0.1}, "own_parts": True, "metrics": {"loss": "lower"}}


def own_model(release: str, card: dict[str, Any], **values: object) -> dict[str, Any]:
    of_all = TrainingSettings.from_mapping({"model": OWN.format(release), **values})
    return run_settings(PLAN, {"ps0": of_all, "worker0": of_all}, card=card)


def test_a_resumed_run_keeps_its_own_model_and_the_card_that_it_began_with() -> None:
    begun, today = own_model("abc", CARD, steps=7), own_model("def", {**CARD, "own_parts": False}, steps=9)
    assert resumed_settings(PLAN, begun, today, chosen=()) == begun
    longer = resumed_settings(PLAN, begun, today, chosen=["steps"])
    assert (longer["cluster"]["model"], longer["cluster"]["steps"]) == (OWN.format("abc"), 9)
    assert longer["card"] == CARD
    assert older_model_note(begun, today) == (
        "mine (release abc), the model that it began with; the inventory has release def, which a new run "
        "trains, without run_id"
    )
    assert (
        older_model_note(begun, begun)
        == older_model_note(begun, settings())
        == older_model_note(settings(), today)
        == ""
    )
    with pytest.raises(
        ValueError, match=r"^it trains \S+/abc/mine.py, and a run keeps its model; trainer_mo"
    ):
        resumed_settings(PLAN, begun, today, chosen=["model"])


def test_the_card_decides_whether_a_run_of_an_own_model_may_be_resized() -> None:
    assert not can_resize(own_model("abc", CARD))
    assert can_resize(own_model("abc", {**CARD, "own_parts": False}))


def test_a_condition_of_a_resumed_run_is_compared_with_the_card_that_it_began_with() -> None:
    begun = own_model("abc", CARD, stop_when="f1 > 0.5", evaluate_every_steps=10)
    with pytest.raises(ValueError, match=r"has no such metric; expected one of loss$"):
        resumed_settings(PLAN, begun, begun, chosen=())


def test_only_a_run_of_an_own_model_has_a_card_and_a_carried_file() -> None:
    assert settings()["card"] is None
    assert carried_model(settings()) is None
    assert carried_model(own_model("abc", CARD)) == {"release": "abc", "file": OWN.format("abc")}

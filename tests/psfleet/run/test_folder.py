import json
from pathlib import Path
from typing import Any

import pytest

from psfleet.run.folder import (
    hosts_may_delete,
    lead_of,
    run_for_playbooks,
    saved_settings,
    state_of,
    tasks_of_run,
    uncollected_runs,
    write_beginning,
)
from psfleet.run.settings_file import RunSettings
from trainer.contract.json_files import read_object, write_json
from trainer.contract.plan import ClusterPlan, PlannedTask

WORKER = PlannedTask("worker", 0, "n1", "10.0.0.1", 2222)
PLAN = ClusterPlan("psfleet", (PlannedTask("ps", 0, "n1", "10.0.0.1", 2223), WORKER))
EMPTY: dict[str, Any] = {"training": {}, "tasks": {}}
WITH_CHIEF = ClusterPlan("psfleet", (WORKER, PlannedTask("chief", 0, "n2", "10.0.0.2", 2223)))


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000, '{"a":' * 100_000])
def test_a_damaged_file_of_a_run_counts_as_absent(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    assert read_object(tmp_path / "settings.json") == {}
    assert saved_settings(tmp_path) == {}


def test_the_settings_of_a_run_are_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"training": {"a": 1}, "tasks": {}}')
    assert saved_settings(tmp_path) == {
        "cluster": {"a": 1},
        "tasks": {},
        "program": None,
        "success": "all_workers",
        "card": None,
    }


def tasks(
    plan: ClusterPlan, program: dict[str, Any] | None = None, **training: object
) -> list[dict[str, Any]]:
    return tasks_of_run(plan.to_json(), {"cluster": training, "program": program})


def test_a_task_is_described_with_its_host_role_and_address() -> None:
    named = {"name": "worker0", "job": "worker", "index": 0}
    placed = {"host": "n1", "role": "client", "address": "10.0.0.1:2222"}
    assert tasks(PLAN)[1] == named | placed


def test_chief0_is_the_lead_of_a_program_and_else_worker0() -> None:
    assert lead_of(tasks(WITH_CHIEF, {"release": "abc"}))["name"] == "chief0"
    assert lead_of(tasks(PLAN, {"release": "abc"}))["name"] == "worker0"
    assert lead_of(tasks(PLAN, replication="local"))["host"] == "n1"


def test_uncollected_lists_only_running_runs_of_this_cluster(tmp_path: Path) -> None:
    left = {
        "r3": ("running", "lab"),
        "r1": ("running", "lab"),
        "r2": ("ended", "lab"),
        "r4": ("stopped", "lab"),
    }
    for run, (state, cluster) in {**left, "r5": ("running", "another")}.items():
        (tmp_path / run).mkdir()
        (tmp_path / run / "state.json").write_text(f'{{"state": "{state}"}}')
        (tmp_path / run / "plan.json").write_text(
            json.dumps({"cluster_name": cluster, "tasks": [{"host": run}]})
        )
    (tmp_path / "r6").mkdir()
    plan = {"cluster_name": "lab", "tasks": [{"host": "r1"}]}
    assert uncollected_runs(tmp_path, plan) == {"r1": [], "r3": ["r3"]}
    assert uncollected_runs(tmp_path / "none", plan) == {}
    assert [state_of(tmp_path / run) for run in ("r1", "r4", "r6", "r7")] == [
        "running",
        "stopped",
        "ended",
        "",
    ]


@pytest.mark.parametrize(
    ("state", "cluster", "whole"),
    [
        ('{"state": "ended", "left_out": []}', "lab", True),
        ('{"state": "ended", "left_out": []}', "another", False),
        ('{"state": "ended", "left_out": ["worker1: no answer"]}', "lab", False),
        ('{"state": "ended", "left_out": {}}', "lab", False),
        ('{"state": "ended"}', "lab", False),
        ('{"state": "stopped", "left_out": []}', "lab", False),
        ('{"state": "failed", "left_out": []}', "lab", False),
        ('{"state": "running", "left_out": []}', "lab", False),
        ("{", "lab", False),
    ],
)
def test_only_a_completely_collected_run_of_this_cluster_counts_as_whole(
    tmp_path: Path, state: str, cluster: str, whole: bool
) -> None:
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "plan.json").write_text(f'{{"cluster_name": "{cluster}"}}')
    assert hosts_may_delete(tmp_path, "lab") is whole


def test_a_wrong_part_of_a_field_is_a_problem_of_the_field() -> None:
    content = {"training": {"model": "linear"}, "card": {"learning_rates": {"sgd": -1}}, "tasks": {"ps0": 7}}
    asked, problems = RunSettings.from_valid_fields(content)
    assert (asked.training, asked.card, asked.tasks) == ({"model": "linear"}, None, {})
    assert problems.keys() == {"card", "tasks"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"training": {}}, "the field training or tasks is missing"),
        ({"training": ["linear"], "tasks": {}}, r"training is \['linear'\]; expected an object"),
        (
            {"training": {}, "tasks": {}, "card": {"learning_rates": {"sgd": -1}}},
            "card.learning_rates.sgd is -1; expected a number > 0",
        ),
        ({"training": {}, "tasks": {"ps0": 7}}, r"tasks\['ps0'\] is 7; expected an object"),
        (
            {"training": {}, "tasks": {}, "program": "main.py"},
            "program is 'main.py'; expected an object or null",
        ),
        (
            {"training": {}, "tasks": {}, "evidence": "loose"},
            "evidence is 'loose'; expected an object or null",
        ),
    ],
)
def test_a_run_with_damaged_settings_is_not_resumed(
    tmp_path: Path, content: dict[str, Any], said: str
) -> None:
    write_json(tmp_path / "settings.json", content)
    with pytest.raises(ValueError, match=f"^{said}$"):
        saved_settings(tmp_path)


def test_a_resumed_run_keeps_its_noted_beginning_and_thresholds(tmp_path: Path) -> None:
    noted = {"begun": "ana@desk, 2026-11-25 09:12 UTC", "evidence": {"minimum_share": 0.1}}
    values = {
        "cluster": {"steps": 7},
        "tasks": {"worker0": {"steps": 7}},
        "program": None,
        "success": 2,
        "card": None,
    }
    (worker,) = tasks(PLAN, replication="local")
    new = run_for_playbooks(tmp_path, values, [worker])["settings"]
    assert new == {"training": {"steps": 7}, "tasks": values["tasks"], "program": None, "success": 2}
    write_json(tmp_path / "settings.json", {**new, **noted})
    assert run_for_playbooks(tmp_path, values, [worker])["settings"] == {**new, **noted}
    assert saved_settings(tmp_path) == values


def test_a_resumed_run_with_another_plan_keeps_earlier_plans_and_endings(tmp_path: Path) -> None:
    run, ended = {"folder": str(tmp_path / "r"), "settings": {}, "action": "start"}, [{"name": "worker0"}]
    one: dict[str, Any] = {"hash": "aaa", "tasks": []}
    other: dict[str, Any] = {"hash": "bbb", "tasks": []}
    write_beginning(run, one)
    write_json(tmp_path / "r" / "tasks.json", ended)
    write_beginning(run, one)
    assert read_object(tmp_path / "r" / "plan.json") == one
    write_beginning(run, other)
    write_beginning(run, other)
    first = {"plan": one, "endings": ended}
    assert read_object(tmp_path / "r" / "plan.json") == {**other, "earlier": [first]}
    (tmp_path / "r" / "tasks.json").unlink()
    write_beginning(run, one)
    last = {"plan": other, "endings": None}
    assert read_object(tmp_path / "r" / "plan.json") == {**one, "earlier": [first, last]}

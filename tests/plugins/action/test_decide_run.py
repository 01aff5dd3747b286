from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from plugins.action import decide_run
from psfleet.run.active_runs import RefusedError
from psfleet.run.settings import run_settings
from tests.plugins.modules.module_run import action_of
from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.run.answering_hosts import found
from trainer.contract.json_files import write_json
from trainer.contract.run_program import RunProgram
from trainer.contract.settings import TrainingSettings

NOW = datetime(2026, 11, 25, 4, 5, 6, tzinfo=timezone.utc)
NAME = "lab-20261125-040506"


@pytest.fixture(autouse=True)
def _one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide_run, "datetime", SimpleNamespace(now=NOW.astimezone))


def begun(runs: Path, *of_hosts: str, check: bool = False, refused: bool = False) -> str:
    """Return the name of a run that begins, while a host has these."""
    action = action_of(decide_run.ActionModule, check=check, cluster_plan={"cluster_name": "lab"})

    def decided(run_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if refused:
            raise RefusedError("run deploy.yml first")
        return {"id": run_id, "folder": str(Path(arguments["runs_directory"]) / run_id)}

    action._decide_run = decided
    found = {"node1": {"tasks": [{"state": "started", "run_id": run_id} for run_id in of_hosts]}}
    answer = action._act({"state": "started", "run_id": "", "runs_directory": str(runs), "found": found})
    return str(answer["msg"] if answer.get("failed") else answer["run"]["id"])


def test_runs_that_begin_in_the_same_second_have_different_names(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        names = [*threads.map(lambda _: begun(tmp_path), range(8))]
    assert sorted(names) == [NAME, *(f"{NAME}-{place}" for place in range(2, 9))]
    assert {path.name for path in tmp_path.iterdir()} == {*names}


def test_a_name_that_hosts_already_hold_is_not_used_again(tmp_path: Path) -> None:
    assert begun(tmp_path, NAME, f"{NAME}-2") == f"{NAME}-3"


def test_check_mode_and_a_refused_run_create_no_folder(tmp_path: Path) -> None:
    assert begun(tmp_path / "runs", check=True) == NAME
    assert "run deploy.yml first" in begun(tmp_path / "runs", refused=True)
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert begun(tmp_path / "runs") == f"{tmp_path}/runs: File exists"


def test_a_started_run_notes_its_beginner_and_time_and_an_attached_one_does_not(tmp_path: Path) -> None:
    plan = make_plan()
    settings = run_settings(plan, {task.name: TrainingSettings() for task in plan.tasks})
    there: dict[str, Any] = {"deployed": plan.to_json(), "lacks_cuda": False}
    hosts = {task.host: found(task.name, **there) for task in plan.tasks}
    action = action_of(
        decide_run.ActionModule,
        cluster_plan=plan.to_json(),
        cluster_settings=settings,
        cluster_person="ana@desk",
    )
    run = action._act({"state": "started", "run_id": "", "runs_directory": str(tmp_path), "found": hosts})[
        "run"
    ]
    assert run["settings"]["begun"] == "ana@desk, 2026-11-25 04:05 UTC"
    # A person who attaches to the run has not begun it.
    lead = {run["lead"]["host"]: found(run["lead"]["name"], alive=True, run_id="r1", **there)}
    watched = action._act(
        {"state": "started", "run_id": "r1", "runs_directory": str(tmp_path), "found": hosts | lead}
    )["run"]
    assert (watched["action"], "begun" in watched["settings"]) == ("attach", False)


def test_a_new_run_needs_a_chosen_program_and_a_resumed_run_keeps_its_own(tmp_path: Path) -> None:
    plan = make_plan()
    of_tasks = {task.name: TrainingSettings() for task in plan.tasks}
    own, other = (
        RunProgram(
            release=name, file=f"/{name}.py", arguments=(), flags=True, observed=True, name=name
        ).to_json()
        for name in ("clicks", "mnist")
    )
    hosts = {
        task.host: found(task.name, deployed=plan.to_json(), lacks_cuda=False, programs=["clicks", "mnist"])
        for task in plan.tasks
    }

    def decided(
        run_id: str,
        program: dict[str, Any],
        unchosen: Sequence[str] = (),
        releases: Mapping[str, str] = {"mnist": "mnist", "clicks": "clicks"},
    ) -> dict[str, Any]:
        settings = run_settings(plan, of_tasks, program) | {"unchosen": [*unchosen]}
        action = action_of(
            decide_run.ActionModule,
            cluster_plan=plan.to_json(),
            cluster_settings=settings,
            cluster_person="ana@desk",
            cluster_programs=[
                {"name": name, "release": release, "packages": {}} for name, release in releases.items()
            ],
        )
        action._loader = DataLoader()
        answer: dict[str, Any] = action._act(
            {"state": "started", "run_id": run_id, "runs_directory": str(tmp_path), "found": hosts}
        )
        return answer

    for run_id in ("", "r1"):
        refused = decided(run_id, other, ["mnist", "clicks"])
        assert refused["failed"]
        assert refused["msg"].endswith("choose one with -e program=...: mnist, clicks"), refused["msg"]
    begun = decided("r1", own)["run"]
    assert begun["settings"]["program"] == own
    (tmp_path / "r1").mkdir()
    write_json(tmp_path / "r1" / "plan.json", plan.to_json())
    write_json(tmp_path / "r1" / "settings.json", begun["settings"])
    write_json(tmp_path / "r1" / "state.json", {"state": "stopped"})
    goes_on = decided("r1", other, ["mnist", "clicks"])["run"]
    assert (goes_on["action"], goes_on["settings"]["program"]) == ("start", own)
    assert goes_on["told"] == ""
    repaired = decided("r1", other, ["mnist", "clicks"], releases={"mnist": "mnist", "clicks": "new"})["run"]
    assert repaired["settings"]["program"] == own
    assert repaired["told"].startswith("Run r1 goes on with clicks, clicks.py (release clicks), the program")
    assert "the inventory has release new, which a new run trains, without run_id" in repaired["told"]


def test_workers_join_a_run_that_goes_on_only_from_where_it_began(tmp_path: Path) -> None:
    plan = make_plan()
    settings = run_settings(plan, {task.name: TrainingSettings() for task in plan.tasks})
    there: dict[str, Any] = {"deployed": plan.to_json(), "lacks_cuda": False}
    hosts = {task.host: found(task.name, alive=True, run_id="r1", **there) for task in plan.tasks}
    worker = plan.tasks_of("worker")[1]
    hosts[worker.host] = found(worker.name, run_id="r1", **there)
    hosts[worker.host]["tasks"][0] |= {"failed": False, "exit_code": 143}

    def watched(hosts: Mapping[str, Any]) -> dict[str, Any]:
        action = action_of(
            decide_run.ActionModule,
            cluster_plan=plan.to_json(),
            cluster_settings=settings | {"success": "chief"},
            cluster_person="ana@desk",
        )
        action._loader = DataLoader()
        answer = action._act(
            {"state": "started", "run_id": "r1", "runs_directory": str(tmp_path), "found": hosts}
        )
        run: dict[str, Any] = answer["run"]
        return run

    elsewhere = watched(hosts)
    assert (elsewhere["action"], elsewhere["starting"], elsewhere["told"]) == ("attach", [], "")
    (tmp_path / "r1").mkdir()
    write_json(tmp_path / "r1" / "plan.json", plan.to_json())
    write_json(tmp_path / "r1" / "settings.json", elsewhere["settings"])
    write_json(tmp_path / "r1" / "state.json", {"state": "running"})
    here = watched(hosts)
    assert [task["name"] for task in here["starting"]] == [worker.name]
    assert here["told"] == f"{worker.name} on {worker.host} joins run r1."
    open_ports = watched(hosts | {worker.host: hosts[worker.host] | {"unfenced": "no table"}})
    assert (open_ports["starting"], open_ports["empty"]) == ([], [worker.name])
    assert open_ports["told"].startswith(f"{worker.name} on {worker.host} cannot join: the ports of tasks")


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ({"state": "ended", "left_out": ["n1: everything: no answer"]}, "recollect"),
        ({"state": "ended", "left_out": []}, "refused"),
        ({"state": "ended"}, "refused"),
        ({"state": "failed", "left_out": ["n1: everything: no answer"]}, "start"),
    ],
)
def test_a_run_that_has_ended_is_collected_again_as_long_as_files_are_left_on_hosts(
    tmp_path: Path, state: Mapping[str, object], action: str
) -> None:
    plan = make_plan()
    settings = run_settings(plan, {task.name: TrainingSettings() for task in plan.tasks})
    (tmp_path / "r1").mkdir()
    write_json(tmp_path / "r1/state.json", dict(state))
    write_json(tmp_path / "r1/plan.json", plan.to_json())
    write_json(tmp_path / "r1/settings.json", {"training": settings["cluster"], "tasks": settings["tasks"]})
    there: dict[str, Any] = {"deployed": plan.to_json(), "lacks_cuda": False}
    hosts = {task.host: found(task.name, **there) for task in plan.tasks}
    known: dict[str, Any] = {
        "cluster_plan": plan.to_json(),
        "cluster_settings": settings,
        "cluster_person": "ana@desk",
    }
    decided = action_of(decide_run.ActionModule, **known)
    decided._loader = DataLoader()
    arguments = {"state": "started", "run_id": "r1", "runs_directory": str(tmp_path), "found": hosts}
    answer = decided._act(arguments)
    if action == "refused":
        assert "run_id r1 exists and has ended" in answer["msg"]
        return
    assert answer["run"]["action"] == action
    assert bool(answer["run"]["starting"]) == (action == "start")
    assert len(answer["run"]["tasks"]) == len(plan.tasks)

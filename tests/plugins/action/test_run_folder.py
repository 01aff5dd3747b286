import json
import stat
from pathlib import Path
from typing import Any

import pytest

from plugins.action import run_folder
from psfleet.evidence.run_manifest import Manifest
from tests.plugins.modules.module_run import action_of
from trainer.contract.json_files import read_object

PLAN = {"hash": "abc", "tasks": []}


def write(folder: Path, *, check_mode: bool = False, **arguments: object) -> dict[str, Any]:
    action = action_of(run_folder.ActionModule, check=check_mode, cluster_plan=PLAN)
    return dict(action._act({"run": begun(folder), "state": "running"} | arguments))


def begun(folder: Path, **other: object) -> dict[str, object]:
    settings = {"steps": 1, "tasks": {}}
    return {"id": "one", "folder": str(folder), "settings": settings} | (other or {"action": "start"})


def content(folder: Path, name: str) -> dict[str, Any]:
    return read_object(folder / f"{name}.json")


def test_a_started_run_gets_its_plan_and_settings_and_loses_its_old_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    assert write(folder)["changed"]
    assert (content(folder, "plan"), content(folder, "settings")) == (PLAN, {"steps": 1, "tasks": {}})
    write(folder, state="stopped", endings=[], left_out=[])
    assert content(folder, "manifest")
    write(folder, run=begun(folder, settings={"steps": 2, "tasks": {}}, action="start"))
    assert (content(folder, "settings"), content(folder, "state")) == (
        {"steps": 2, "tasks": {}},
        {"state": "running"},
    )
    assert not (folder / "manifest.json").exists()


def test_the_folder_of_all_runs_is_private_unless_its_owner_opens_it(tmp_path: Path) -> None:
    runs = tmp_path / "project" / "runs"
    write(runs / "one")
    assert stat.S_IMODE(runs.stat().st_mode) == 0o700
    runs.chmod(0o755)
    write(runs / "two")
    assert stat.S_IMODE(runs.stat().st_mode) == 0o755


def test_a_stopped_run_keeps_the_settings_of_its_start(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, run=begun(tmp_path, settings={"steps": 9}))
    assert content(tmp_path, "settings") == {"steps": 1, "tasks": {}}


def test_the_manifest_contains_all_files_written_before_it(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "worker0.json").write_text("[]")
    write(tmp_path, state="ended", endings=[{"name": "ps0"}], left_out=[])
    assert json.loads((tmp_path / "tasks.json").read_text()) == [{"name": "ps0"}]
    assert "worker0.json cannot be read" in (tmp_path / "devices.txt").read_text()
    assert Manifest.read(tmp_path).holds(tmp_path, "tasks.json")


def test_the_end_of_a_run_is_noted_before_its_device_reports_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_folder: Path) -> str:
        raise RuntimeError

    monkeypatch.setattr(run_folder, "render", broken)
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "worker0.json").write_text("{}")
    with pytest.raises(RuntimeError):
        write(tmp_path, state="ended", endings=[], left_out=[])
    assert content(tmp_path, "state") == {"state": "ended", "left_out": []}


def test_files_left_on_hosts_and_tasks_without_an_answer_are_noted(tmp_path: Path) -> None:
    run = begun(tmp_path, settings={"tasks": {"ps0": {}, "worker1": {}, "worker0": {}}})
    write(tmp_path, run=run, state="ended", endings=[{"name": "ps0"}], left_out=["node1: output/x: a link"])
    noted = ["node1: output/x: a link", "worker0: no answer", "worker1: no answer"]
    assert content(tmp_path, "state") == {"state": "ended", "left_out": noted}


def test_a_run_that_is_collected_again_keeps_its_endings_and_what_other_hosts_left_out(
    tmp_path: Path,
) -> None:
    tasks = [
        {"name": name, "host": host} for name, host in (("ps0", "n1"), ("worker0", "n2"), ("worker1", "n3"))
    ]
    run = begun(tmp_path, settings={"tasks": {task["name"]: {} for task in tasks}}, tasks=tasks)
    write(
        tmp_path,
        run=run,
        state="ended",
        endings=[{"name": "ps0"}, {"name": "worker1"}],
        left_out=["n1: x", "n3: y"],
    )
    again = {**run, "action": "recollect"}
    write(tmp_path, run=again, state="failed", endings=[], left_out=["n1: z"], hosts=["n1"])
    noted = ["n3: y", "worker0: no answer", "n1: z"]
    assert content(tmp_path, "state") == {"state": "ended", "left_out": noted}
    assert json.loads((tmp_path / "tasks.json").read_text()) == [{"name": "ps0"}, {"name": "worker1"}]
    write(tmp_path, run=again, state="failed", endings=[], left_out=[], hosts=["n1", "n2", "n3"])
    assert content(tmp_path, "state") == {"state": "ended", "left_out": []}
    assert Manifest.read(tmp_path).holds(tmp_path, "tasks.json")


def test_check_mode_writes_nothing_and_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    assert write(tmp_path / "checked", check_mode=True) == {"changed": True}
    assert not (tmp_path / "checked").exists()
    (tmp_path / "file").touch()
    assert write(tmp_path / "file") == {"failed": True, "msg": f"{tmp_path}/file: File exists"}

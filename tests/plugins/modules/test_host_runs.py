import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.host_places import remove_tree
from plugins.module_utils.tasks import kept_runs
from plugins.modules import host_runs
from tests.plugins.modules.module_run import module_answer


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    """A host with three runs, the newest with a known step, and a run with only logs."""
    for number, run in enumerate(("r1", "r2", "r3")):
        (tmp_path / "state/runs" / run / "events").mkdir(parents=True)
        (tmp_path / "state/runs" / run / "events/ps0.jsonl").write_bytes(b"x" * 20_000)
        (tmp_path / "log" / run).mkdir(parents=True)
        (tmp_path / "log" / run / "ps0.out").write_bytes(b"x" * 10_000)
        for place in ("state/runs", "log"):
            os.utime(tmp_path / place / run, (number, number))
    (tmp_path / "state/runs/r3/progress.json").write_text('{"global_step": 12}')
    (tmp_path / "log/r0").mkdir()
    os.utime(tmp_path / "log/r0", (-5, -5))
    (tmp_path / "log/current").symlink_to("r3")
    (tmp_path / "log/doctor-ps-0.out").touch()
    for name in ("Not One", "-rf", "..x", "a" * 64):
        (tmp_path / "state/runs" / name).mkdir()
    (tmp_path / "state/runs/.tmp/r1/worker0").mkdir(parents=True)
    os.utime(tmp_path / "state/runs/.tmp/r1", (0, 0))
    (tmp_path / "etc/run").mkdir(parents=True)
    return {
        "state_directory": str(tmp_path / "state"),
        "log_directory": str(tmp_path / "log"),
        "configuration_directory": str(tmp_path / "etc"),
    }


def removed(paths: dict[str, str], *collected: str, stay: int = 0, check: bool = False) -> dict[str, Any]:
    state = {"state": "removed", "collected": list(collected), "stay": stay}
    return module_answer(host_runs, check=check, paths=paths, **state)


def left(folder: Path) -> tuple[set[str], set[str]]:
    assert (folder / "state/runs/.tmp/r1").exists() == (folder / "state/runs/r1").exists()
    found = ({path.name for path in (folder / place).iterdir()} for place in ("state/runs", "log"))
    runs, logs = (names & {"r0", "r1", "r2", "r3"} for names in found)
    return runs, logs


def test_runs_are_listed_newest_first_with_their_sizes(paths: dict[str, str]) -> None:
    runs = module_answer(host_runs, paths=paths)["runs"]
    assert [run["run_id"] for run in runs] == ["r3", "r2", "r1", "r0"]
    assert [run["global_step"] for run in runs] == [12, None, None, None]
    assert [run["changed"] for run in runs][1:] == [1, 0, -5]
    assert all(30_000 <= run["size"] < 100_000 for run in runs[:3])
    assert runs[3]["size"] < 10_000


def test_the_newest_collected_runs_are_kept(tmp_path: Path, paths: dict[str, str]) -> None:
    answer = removed(paths, "r9", "r3", "r2", "r0", stay=1, check=True)
    assert (answer["changed"], answer["removed"]) == (True, ["r2", "r0"])
    assert left(tmp_path) == ({"r1", "r2", "r3"}, {"r0", "r1", "r2", "r3"})
    answer = removed(paths, "r9", "r3", "r2", "r0", stay=1)
    assert 30_000 <= answer["freed_bytes"] < 100_000
    assert left(tmp_path) == ({"r1", "r3"}, {"r1", "r3"})
    assert removed(paths, "r9", "r3", "r2", "r0", stay=1)["changed"] is False


def test_names_that_lead_outside_are_not_removed(tmp_path: Path, paths: dict[str, str]) -> None:
    (tmp_path / "state/kept").mkdir()
    asked = ["../kept", "..", ".", "", "/", "-rf", "Not One", "current", "r1/events", str(tmp_path)]
    assert removed(paths, *asked)["changed"] is False
    assert left(tmp_path) == ({"r1", "r2", "r3"}, {"r0", "r1", "r2", "r3"})


def test_links_of_the_tasks_are_not_followed(tmp_path: Path, paths: dict[str, str]) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"x" * 1_000_000)
    (tmp_path / "state/runs/r1/leads_out").symlink_to(elsewhere)
    (tmp_path / "state/runs/r4").symlink_to(elsewhere)
    runs = module_answer(host_runs, paths=paths)["runs"]
    assert "r4" not in [run["run_id"] for run in runs]
    assert max(run["size"] for run in runs) < 100_000
    removed(paths, "r1", "r4")
    assert (elsewhere / "file").exists()
    assert left(tmp_path) == ({"r2", "r3"}, {"r0", "r2", "r3"})


def test_a_run_with_deep_folders_is_measured_and_removed(
    tmp_path: Path, deep_folder: Path, paths: dict[str, str]
) -> None:
    state = Path(shutil.move(tmp_path / "state", deep_folder))
    paths["state_directory"] = str(state)
    script = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')"
    subprocess.run(["python3", "-c", script], cwd=state / "runs/r2", check=True)
    assert module_answer(host_runs, paths=paths)["runs"][0]["run_id"] == "r2"
    assert removed(paths, "r2")["removed"] == ["r2"]
    assert {path.name for path in (state / "runs").iterdir() if len(path.name) == 2} == {"r1", "r3"}


def test_a_run_that_is_alive_is_kept(
    tmp_path: Path, paths: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc/run/worker-1.env").write_text('PSFLEET_RUN_ID="r1"\n')
    (tmp_path / "etc/run/ps-0.env").write_text('PSFLEET_RUN_ID="r2"\n')
    listed = "psfleet-worker@1.service loaded active running psfleet: worker 1\n"
    monkeypatch.setattr(kept_runs, "systemctl", lambda *_: listed)
    assert removed(paths, "r2", "r1")["removed"] == ["r2"]
    assert left(tmp_path)[0] == {"r1", "r3"}


def test_a_run_that_cannot_be_removed_is_named_and_the_others_are_removed(
    tmp_path: Path, paths: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stubborn(path: Path) -> None:
        if path.name == "r2":
            raise ValueError(f"{path} is a mount")
        remove_tree(path)

    monkeypatch.setattr(kept_runs, "remove_tree", stubborn)
    answer = removed(paths, "r2", "r1")
    assert answer["changed"]
    assert answer["warnings"] == [f"run r2 could not be removed: {tmp_path}/state/runs/r2 is a mount"]
    assert left(tmp_path)[0] == {"r2", "r3"}


def test_a_host_without_runs_lists_and_removes_none(tmp_path: Path) -> None:
    names = ("state_directory", "log_directory", "configuration_directory")
    paths = {name: str(tmp_path / "none" / name) for name in names}
    assert module_answer(host_runs, paths=paths)["runs"] == []
    assert removed(paths, "r1")["changed"] is False

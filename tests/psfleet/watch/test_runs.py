import json
import os
from pathlib import Path
from typing import Any

import pytest

from psfleet.watch.console import PlaybookConsole
from psfleet.watch.runs import RunList, RunRow, runs_here
from psfleet.watch.runs_table import runs_table


def made(runs: Path, name: str, began: float, state: object, **files: object) -> None:
    """Make a run's folder as the playbooks leave it."""
    (runs / name).mkdir(parents=True)
    for file, content in {"state": state, "plan": {}, **files}.items():
        (runs / name / f"{file}.json").write_text(json.dumps(content))
    os.utime(runs / name / "plan.json", (began, began))


def told(
    run_id: str, size: int = 2_000_000, changed: float = 5.0, step: float | None = None
) -> dict[str, Any]:
    return {"run_id": run_id, "size": size, "changed": changed, "global_step": step}


def answer(*runs: dict[str, Any], problem: str = "") -> dict[str, Any]:
    return {"problem": problem, "runs": list(runs)}


def shown(found: RunList, columns: int = 0, *, verbose: bool = False) -> list[str]:
    console = PlaybookConsole(columns)
    return console.lines(*runs_table(found, console, verbose=verbose))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    whole = {"state": "ended", "left_out": []}
    judged = {"verdict": "proven", "figures": {"global_steps": 400}}
    of_program = {"program": {"file": "/opt/psfleet/programs/0123456789ab/train.py"}, "training": {}}
    linear = {"training": {"model": "linear"}, "program": None}
    made(tmp_path, "first", 1e9, whole, settings=linear, verdict=judged)
    made(tmp_path, "second", 2e9, whole | {"left_out": ["x"]}, settings=of_program)
    made(tmp_path, "third", 3e9, {"state": "running"}, settings=linear)
    named = {"program": {"name": "clicks", **of_program["program"]}, "training": {}}
    made(tmp_path, "fourth", 2.5e9, {"state": "stopped"}, settings=named)
    return tmp_path


def test_runs_on_the_controller_are_read_from_their_folders_newest_first(here: Path) -> None:
    rows = [
        (row.run_id, row.trains, row.steps, row.verdict, row.collected, row.style) for row in runs_here(here)
    ]
    assert rows == [
        ("third", "linear", None, "", "not yet", "plain"),
        ("fourth", "clicks", None, "stopped", "unknown", "plain"),
        ("second", "train.py", None, "", "in part", "plain"),
        ("first", "linear", 400, "proven", "yes", "good"),
    ]
    assert all(4 * 512 <= row.here <= 10 * 4096 for row in runs_here(here) if row.here is not None)
    assert runs_here(here / "none") == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"training": 3, "program": [], "figures": 2, "verdict": []}']
)
def test_fields_of_a_damaged_folder_are_unknown(here: Path, text: str) -> None:
    for name in ("settings", "verdict", "state"):
        (here / "first" / f"{name}.json").write_text(text)
    row = runs_here(here)[-1]
    assert (row.run_id, row.trains, row.steps, row.verdict, row.collected) == (
        "first",
        "",
        None,
        "",
        "unknown",
    )


def test_runs_on_the_controller_and_on_hosts_are_merged_into_one_list(here: Path) -> None:
    answers = {
        "node1": answer(told("first", 1000, 2.9e9, 700), told("theirs", 500, 2.2e9), told("third", step=30)),
        "node2": answer(told("first", 3000), told("theirs", 700, 2.1e9, 9), told("third", step=20)),
    }
    found = RunList.of(runs_here(here), answers)
    rows = {row.run_id: row for row in found.rows}
    assert [*rows] == ["third", "fourth", "theirs", "second", "first"]
    assert (rows["first"].steps, rows["first"].hosts) == (400, {"node1": 1000, "node2": 3000})
    assert (rows["third"].steps, rows["third"].began) == (30, 3e9)
    assert rows["theirs"] == RunRow("theirs", steps=9, began=2.2e9, hosts={"node1": 500, "node2": 700})
    assert found.summary.startswith("5 runs: 4 here (")
    assert found.summary.endswith("), 3 on 2 hosts (4.0 MB)")
    assert (found.notes, found.failure) == ((), "")


def test_a_host_without_an_answer_is_named(here: Path) -> None:
    answers = {"node1": answer(), "node2": answer(problem="could not log in"), "node3": {}}
    found = RunList.of(runs_here(here), answers)
    assert found.notes == (
        "node2 gave no answer: could not log in",
        "node3 gave no answer: lost on the way",
    )
    assert not found.failure
    silent = RunList.of(runs_here(here), {"node2": answer(problem="could not log in")})
    assert len(silent.rows) == 4
    assert silent.failure.startswith("no host answered")


def test_the_columns_of_the_table_fit_the_terminal(here: Path) -> None:
    found = RunList.of(runs_here(here), {f"node{number}": answer(told("first")) for number in range(5)})
    wide, lines = shown(found), shown(found, 79)
    assert wide[0].split("  ")[0] == "RUN"
    assert wide[0].split()[-3:] == ["HOSTS", "BEGAN", "HOSTS"]
    assert wide[4].endswith("node0, node1, node2 and 2 more")
    assert "2001-09-09" in wide[4] or "2001-09-08" in wide[4]
    assert lines[0].split() == ["RUN", "TRAINS", "STEPS", "VERDICT", "COLLECTED", "HERE", "ON", "HOSTS"]
    for columns in (20, 45, 60, 79, 100):
        assert all(len(line) <= columns for line in shown(found, columns))
    assert "ON HOSTS" in shown(found, 45)[0]
    assert "first on node4: 2.0 MB" in shown(found, verbose=True)


def test_unknown_steps_are_shown_as_a_dash_and_not_as_0() -> None:
    found = RunList.of([], {"node1": answer(told("silent", step=0.0), told("first", step=7.0))})
    silent, first = (
        next(line for line in shown(found) if line.startswith(run)) for run in ("silent", "first")
    )
    assert (silent.split()[1], first.split()[1]) == ("-", "7")


@pytest.mark.parametrize("moment", [9e18, 1e300])
def test_an_impossible_time_is_not_shown(moment: float) -> None:
    (_, row, *_) = shown(RunList.of([], {"node1": answer(told("theirs", changed=moment))}))
    assert row.split() == ["theirs", "not", "here", "2.0", "MB", "node1"]


def test_without_runs_the_list_names_train_yml() -> None:
    assert shown(RunList.of([], {"node1": answer()})) == [
        "No run yet: `ansible-playbook train.yml` starts one."
    ]

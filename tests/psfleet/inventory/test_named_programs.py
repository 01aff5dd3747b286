"""Several programs in one inventory: their settings, the choice of one, and their problems."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.content_directory import content_hash
from psfleet.inventory.named_programs import PROGRAM_KEYS
from tests.psfleet.inventory.checked import checked, facts, hosts_file, written
from tests.psfleet.inventory.inventories import RULES


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"mnist/train.py": "mnist", "mnist/main.py": "0", "clicks.py": "clicks", "own.py": "own"}
    written(tmp_path, {**files, "clicks.txt": "rich", "all.txt": "rich"})


NAMED = {
    "mnist": {"path": "mnist", "entry": "train.py", "tensorflow1": True, "arguments": ["--steps", 7]},
    "clicks": {"path": "clicks.py", "requirements": "clicks.txt", "environment": {"A": 1}, "flags": "no"},
}


def inventory(of_all: Mapping[str, object] | None = None, **programs: object) -> Path:
    variables = {"trainer_programs": programs or NAMED, **(of_all or {})}
    hosts = hosts_file({"node1": {}}, {"node1": {}, "node2": {}})
    return written(Path.cwd() / "cluster", {"hosts.yml": hosts, "group_vars/tf_cluster.yml": variables})


def program_of(place: Path, **command_line: object) -> dict[str, Any]:
    """Return the description of the program that the tasks of a run get."""
    program = facts(place, command_line)["cluster_settings"]["program"]
    assert program is None or isinstance(program, dict)
    return program or {}


def test_a_named_program_has_every_setting_of_a_program_except_may_reach() -> None:
    variables = {name for name in RULES if f"{name}_".startswith("trainer_program_")}
    assert variables == {*PROGRAM_KEYS.values(), "trainer_program_may_reach"}


def test_all_named_programs_are_carried_with_their_own_settings_or_those_for_all() -> None:
    place = inventory({"trainer_program_arguments": ["--all"], "trainer_program_requirements": "all.txt"})
    mnist, clicks = facts(place)["cluster_programs"]
    assert [each["name"] for each in (mnist, clicks)] == ["mnist", "clicks"]
    assert [each["release"] for each in (mnist, clicks)] == [
        content_hash(Path("mnist")),
        content_hash(Path("clicks.py")),
    ]
    assert (mnist["entry"], mnist["arguments"], mnist["tensorflow1"]) == ("train.py", ["--steps", "7"], True)
    assert (clicks["entry"], clicks["arguments"], clicks["tensorflow1"]) == ("clicks.py", ["--all"], False)
    assert (clicks["environment"], clicks["flags"]) == ({"A": "1"}, False)
    of_both = [Path(each["requirements"]).name for each in (mnist, clicks)]
    assert of_both == ["all.txt", "clicks.txt"]


@pytest.mark.parametrize("name", NAMED)
def test_the_chosen_program_runs(name: str) -> None:
    chosen = facts(inventory(), {"program": name})
    program = next(each for each in chosen["cluster_programs"] if each["name"] == name)
    told = chosen["cluster_settings"]["program"]
    assert told.items() >= {key: program[key] for key in ("name", "release", "arguments", "flags")}.items()
    assert told["file"] == f"/opt/psfleet/programs/{program['release']}/{program['entry']}"
    assert chosen["cluster_settings"]["unchosen"] == []
    assert chosen["cluster_programs"] == facts(inventory())["cluster_programs"], "the other one stays"


def test_a_choice_is_required_only_among_several_named_programs() -> None:
    for of_all, programs, name, unchosen in (
        ({}, NAMED, "mnist", ["mnist", "clicks"]),
        ({}, {"clicks": NAMED["clicks"]}, "clicks", []),
        ({"trainer_program": "own.py"}, NAMED, "", []),
    ):
        settings = facts(inventory(of_all, **programs))["cluster_settings"]
        assert (settings["program"]["name"], settings["unchosen"]) == (name, unchosen)
    own = inventory({"trainer_program": "own.py"})
    assert [each["name"] for each in facts(own)["cluster_programs"]] == ["", "mnist", "clicks"]
    assert program_of(own, program="clicks")["file"].endswith("/clicks.py")
    assert program_of(inventory(), trainer_program="own.py")["file"].endswith("/own.py")


def test_a_proof_needs_no_chosen_program() -> None:
    settings = facts(inventory(), proof="async")["cluster_settings"]
    assert (settings["program"], settings["unchosen"]) == (None, [])


def test_values_of_the_command_line_override_those_of_the_chosen_program() -> None:
    given = {"trainer_program_arguments": "--steps 9", "trainer_program_tensorflow1": "no"}
    given |= {"trainer_program_entry": "main.py"}
    chosen = facts(inventory(), {"program": "mnist", **given})
    program, (_, clicks) = chosen["cluster_settings"]["program"], chosen["cluster_programs"]
    assert (program["arguments"], program["tensorflow1"]) == (["--steps", "9"], False)
    assert program["file"].endswith("/main.py")
    assert clicks == facts(inventory(), {"program": "mnist"})["cluster_programs"][1] | {
        "arguments": ["--steps", "9"]
    }


def test_the_entry_of_the_chosen_program_is_not_required_of_the_others() -> None:
    place = inventory({"trainer_program_entry": "train.py"}, mnist={"path": "mnist"}, all={"path": "."})
    lacking = f"trainer_program_entry is 'train.py', and there is no file {Path.cwd()}/train.py; expected a"
    assert (
        f"{lacking} file of the folder trainer_programs.all.path;" in checked(place, {"program": "mnist"})[1]
    )
    chosen = program_of(place, program="mnist", trainer_program_entry="main.py")
    assert chosen["file"].endswith("/main.py")


def test_a_cluster_of_named_programs_may_have_a_chief_and_no_ps() -> None:
    hosts: Any = {"tf_cluster": {"children": {job: {"hosts": {"n1": {}}} for job in ("chief", "worker")}}}
    place = written(inventory(), {"hosts.yml": hosts})
    assert list(facts(place)["cluster_settings"]["tasks"]) == ["worker0", "chief0"]


def test_problems_of_files_are_reported_for_their_program_or_once_for_all() -> None:
    place = inventory(
        {"trainer_program_requirements": "nowhere.txt"},
        mnist={"path": "cluster", "requirements": "neither.txt", "arguments": ["{data_dir}", "{taskindex}"]},
        clicks={"path": "nowhere.py"},
        digits={"path": "clicks.py"},
    )
    here = Path.cwd()
    lines = checked(place)[1].splitlines()
    assert lines[0] == "The inventory has 6 problems. Nothing was touched."
    beginnings = [
        ("1. trainer_programs.mnist.arguments has {taskindex}, which is no placeholder; expected", 5),
        ("2. trainer_programs.mnist.arguments has {data_dir}, and worker0, worker1 has none; expected", 5),
        (f"3. trainer_programs.mnist.entry is 'main.py', and there is no file {here}/cluster/main.py;", 2),
        ("4. trainer_programs.mnist.requirements is 'neither.txt', and there is no file", 4),
        (f"5. trainer_programs.clicks.path is 'nowhere.py', and there is no {here}/nowhere.py;", 9),
        ("6. trainer_program_requirements is 'nowhere.txt', and there is no file", 12),
    ]
    for (beginning, line), said, edit in zip(beginnings, lines[1::2], lines[2::2], strict=True):
        assert said.startswith(beginning), said
        assert edit == f"   edit cluster/group_vars/tf_cluster.yml:{line}"


def test_a_problem_names_the_line_of_its_own_program() -> None:
    refusal = checked(inventory(**{"v1.2": {"path": "nowhere"}, "v1": {"path": "nowhere"}}))[1]
    assert "trainer_programs.v1.2.path is 'nowhere'" in refusal
    assert refusal.splitlines()[2::2] == [
        f"   edit cluster/group_vars/tf_cluster.yml:{line}" for line in (3, 5)
    ]


def test_a_problem_on_the_command_line_is_located_there() -> None:
    refusal = checked(inventory(), {"trainer_programs": {"clicks": {"path": "nowhere"}}})[1]
    assert "trainer_programs.clicks.path is 'nowhere'" in refusal
    assert refusal.endswith("\n   given with -e on the command line")

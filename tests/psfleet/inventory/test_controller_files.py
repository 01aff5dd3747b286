"""Programs and data of the controller: facts, or a refusal with the inventory's other problems."""

import os
import venv
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.content_directory import content_hash
from plugins.module_utils.environments.environment import SUPPORTED_PYTHONS, TENSORFLOW_VERSION
from psfleet.inventory.program_requirements import ProgramRequirements
from tests.psfleet.inventory.checked import checked, facts, hosts_file, placed, written
from tests.repository import ROOT

GROUPS = hosts_file({"node1": {}}, {"node1": {}, "node2": {"trainer_data_dir": "/srv/data"}})


def with_variables(folder: Path, **variables: object) -> Path:
    return written(folder / "cluster", {"hosts.yml": GROUPS, "group_vars/tf_cluster.yml": variables})


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program, and with files that do not belong to it."""
    folder = tmp_path / "program"
    for name in ("main.py", "layers/dense.py", ".git/config", "__pycache__/main.pyc", ".venv/pyvenv.cfg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print('hello')\n", encoding="utf-8")
    return folder


def test_a_program_folder_gives_its_release_and_its_settings(program: Path, tmp_path: Path) -> None:
    requirements = program.parent / "requirements.txt"
    requirements.write_text("rich==14.0.0\n", encoding="utf-8")
    inventory = with_variables(
        tmp_path,
        trainer_program=str(program),
        trainer_program_entry="layers/dense.py",
        trainer_program_arguments=["--layers", 3],
        trainer_program_environment={"TF_USE_LEGACY_KERAS": 1},
        trainer_program_flags="no",
        trainer_program_tensorflow1=True,
        trainer_program_end_deadline_minutes=5,
        trainer_program_collect=["/tmp/tables/", "results"],
        trainer_program_requirements=str(requirements),
    )
    before = facts(inventory)["cluster_programs"]
    assert before == [
        {
            "name": "",
            "source": str(program),
            "entry": "layers/dense.py",
            "arguments": ["--layers", "3"],
            "environment": {"TF_USE_LEGACY_KERAS": "1"},
            "flags": False,
            "observed": True,
            "tensorflow1": True,
            "end_deadline_minutes": 5,
            "collect": ["/tmp/tables", "results"],
            "requirements": str(requirements),
            "packages": {
                "key": ProgramRequirements.read(requirements).key,
                "file": str(requirements),
                "variable": "trainer_program_requirements",
                "tensorflow": TENSORFLOW_VERSION,
                "pythons": list(SUPPORTED_PYTHONS),
            },
            "release": content_hash(program),
        }
    ]
    (program / ".git/config").write_text("else\n", encoding="utf-8")
    (program / "__pycache__/main.pyc").write_text("else\n", encoding="utf-8")
    assert facts(inventory)["cluster_programs"] == before
    (program / "layers/dense.py").write_text("print('else')\n", encoding="utf-8")
    assert facts(inventory)["cluster_programs"][0]["release"] != before[0]["release"]


def test_a_program_file_data_and_a_chief_give_the_expected_facts(tmp_path: Path) -> None:
    program, data = tmp_path / "train.py", tmp_path / "digits.npz"
    program.write_text("print('hello')\n", encoding="utf-8")
    data.write_text("0 1 2\n", encoding="utf-8")
    tree: Any = hosts_file({}, {"node1": {}, "node2": {"trainer_data_dir": "/srv/data"}})
    tree["tf_cluster"]["children"] |= {"ps": {"hosts": {"node4": {}}}, "chief": {"hosts": {"node3": {}}}}
    given = {"trainer_program": str(program), "trainer_data_source": str(data)}
    shown = facts(written(tmp_path / "cluster", {"hosts.yml": tree}), given)
    nodes = {"ps0": "node4", "worker0": "node1", "worker1": "node2", "chief0": "node3"}
    assert placed(shown) == {task: f"{node}:2222" for task, node in nodes.items()}
    of_program = shown["cluster_programs"][0]
    assert (of_program["entry"], of_program["release"]) == ("train.py", content_hash(program))
    carried = "/opt/psfleet/data"
    assert shown["cluster_data"] == {
        "source": str(data),
        "models": [],
        "directories": {"node1": [carried], "node2": ["/srv/data"], "node3": [carried]},
        "tables": {},
    }


@pytest.mark.parametrize(
    ("chief", "given", "flags"),
    [
        (False, {}, True),
        (True, {}, False),
        (True, {"trainer_program_flags": True}, True),
        (False, {"trainer_program_flags": False}, False),
        (True, {"trainer_program_flags": "null"}, False),
    ],
)
def test_a_program_beside_a_chief_gets_the_flags_only_if_asked_for(
    program: Path, tmp_path: Path, chief: bool, given: dict[str, object], flags: bool
) -> None:
    tree: Any = hosts_file({"node1": {}}, {"node1": {}})
    if chief:
        tree["tf_cluster"]["children"]["chief"] = {"hosts": {"node1": {}}}
    shown = facts(
        written(tmp_path / "cluster", {"hosts.yml": tree}), {"trainer_program": str(program), **given}
    )
    assert shown["cluster_programs"][0]["flags"] is flags
    assert shown["cluster_settings"]["program"]["flags"] is flags


def test_relative_paths_and_home_are_resolved_as_by_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # `ansible-playbook` is typed there, and the inventory is elsewhere
    exit_codes = "trainer/contract/exit_codes.py"
    shown = facts(with_variables(tmp_path, trainer_program=f"./{exit_codes}", trainer_data_source="~"))
    assert shown["cluster_programs"][0]["source"] == str(ROOT / exit_codes)
    assert shown["cluster_data"]["source"] == str(Path.home())


def test_nothing_is_carried_without_a_program_and_data(tmp_path: Path) -> None:
    shown = facts(with_variables(tmp_path))
    assert (shown["cluster_programs"], shown["cluster_data"]) == (
        [],
        {"source": "", "models": [], "directories": {"node2": ["/srv/data"]}, "tables": {}},
    )


def test_problems_of_files_are_reported_with_all_other_problems(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program / "a").touch()
    os.truncate(program / "a", 100_000_001)
    Path("empty").mkdir()
    inventory = with_variables(
        tmp_path,
        trainer_program="program",
        trainer_program_entry=".venv/pyvenv.cfg",
        trainer_program_requirements="nowhere.txt",
        trainer_data_source="empty",
        trainer_batch_size=0,
    )
    where = "edit cluster/group_vars/tf_cluster.yml"
    assert (
        checked(inventory)[1]
        == f"""\
The inventory has 5 problems. Nothing was touched.
1. trainer_batch_size is 0; expected an integer >= 1
   {where}:5
2. trainer_program_entry is '.venv/pyvenv.cfg', which is left out; expected a file of the folder \
trainer_program; what begins with a dot is left out
   {where}:2
3. trainer_program is 'program', which holds 100 MB (the largest file is a); expected 100 MB at \
most: trainer_data_source carries data
   {where}:1
4. trainer_program_requirements is 'nowhere.txt', and there is no file {tmp_path}/nowhere.txt; expected a \
requirements.txt on this machine
   {where}:3
5. trainer_data_source is 'empty', which is empty; expected a file or folder on this machine, with something \
in it
   {where}:4"""
    )


def test_refused_requirements_name_the_line_and_the_variable(program: Path, tmp_path: Path) -> None:
    (tmp_path / "older.txt").write_text("tensorflow==1.15.5\n")
    (tmp_path / "option.txt").write_text("pandas\n--index-url=https://example.org\n")
    named = {"path": str(program), "entry": "main.py"}
    programs = {
        name: {**named, "requirements": str(tmp_path / f"{name}.txt")} for name in ("older", "option")
    }
    refusal = checked(with_variables(tmp_path, trainer_programs=programs))[1]
    of = "trainer_programs.older.requirements is "
    assert (
        f"{of}'{tmp_path}/older.txt', where it requires TensorFlow ==1.15.5; psfleet installs 2.12" in refusal
    )
    of = "trainer_programs.option.requirements is "
    assert (
        f"{of}'{tmp_path}/option.txt', where line 2 is '--index-url=https://example.org' (the option"
        in refusal
    )


def test_missing_files_are_refused_with_their_variables(program: Path, tmp_path: Path) -> None:
    nowhere = with_variables(tmp_path, trainer_program="nowhere/train.py")
    refusal = checked(nowhere, {"trainer_data_source": "/nowhere"})[1]
    assert refusal.startswith("The inventory has 2 problems")
    assert "trainer_program is 'nowhere/train.py', and there is no /" in refusal
    assert "train.py; expected a Python file, or a folder with one, on this machine\n   edit /" in refusal
    assert "trainer_data_source is '/nowhere', and there is no /nowhere; expected" in refusal
    assert "   given with -e on the command line" in refusal
    strange = {"trainer_program": "~no.such.user/train.py", "trainer_data_source": "/" + "x" * 256}
    refusal = checked(nowhere, strange | {"trainer_program_requirements": "\ud800"})[1]
    assert refusal.startswith("The inventory has 3 problems")
    assert f"and there is no {Path.cwd()}/~no.such.user/train.py; expected a Python file" in refusal
    os.truncate((program / "main.py").rename(program / "as_large_as_may_be"), 100_000_000 - 15)
    refusal = checked(with_variables(tmp_path, trainer_program=str(program)))[1]
    assert refusal.startswith("The inventory has a problem")
    assert f"trainer_program_entry is 'main.py', and there is no file {program}/main.py; expected" in refusal


def test_a_program_that_cannot_be_carried_is_refused(program: Path, tmp_path: Path) -> None:
    inventory = with_variables(tmp_path, trainer_program=str(program))
    (program / "data").symlink_to("/tmp")
    what = (
        f"where {program}/data is a link to a folder: put the folder itself there; expected files and folders"
    )
    assert f"trainer_program is '{program}', {what} that can be carried\n" in checked(inventory)[1]
    venv.create(program / "environment", symlinks=True)
    what = f"which holds the virtual environment {program}/environment; expected the program alone"
    assert f"trainer_program is '{program}', {what}" in checked(inventory)[1]
    what = "where /dev/null cannot be read (Not a directory); expected files that you may read"
    refusal = checked(inventory, {"trainer_program": "/dev/null"})[1]
    assert f"1. trainer_program is '/dev/null', {what}\n" in refusal


def test_data_that_the_model_cannot_train_on_are_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clicks").mkdir()
    for name in ("train.csv", "test.csv"):
        Path("clicks", name).write_text("1,5,0a1b2c3d\n" * 2000, "utf-8")
    inventory = with_variables(tmp_path, trainer_model="dlrm", trainer_data_source="clicks")
    file = f"{tmp_path}/clicks/train.csv"
    assert (
        checked(inventory)[1]
        == f"""\
The inventory has a problem. Nothing was touched.
1. trainer_data_source is 'clicks', and dlrm cannot train on it: 1000 of 1000 lines in the beginning of \
{file} are damaged, expected at most 0.1%; a line has a label, 13 integers and 26 values of 8 hexadecimal \
digits, with tabs between. The first: {file} line 1 (1 column): 1,5,0a1b2c3d; {file} line 2 (1 column): \
1,5,0a1b2c3d; {file} line 3 (1 column): 1,5,0a1b2c3d
   edit cluster/group_vars/tf_cluster.yml:2"""
    )
    for others in ({"trainer_model": "linear"}, {"trainer_program": str(program)}):
        assert checked(inventory, others)[1] == ""

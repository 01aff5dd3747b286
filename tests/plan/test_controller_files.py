"""Programs and data of the controller, given to the real preflight: facts, or a refusal."""

import venv
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.content_directory import content_hash
from tests.plan.conftest import Preflight, cure, facts, hosts_file, placed, refused

GROUPS = hosts_file({"node1": {}}, {"node1": {}, "node2": {"trainer_data_dir": "/srv/data"}})


def with_variables(**variables: object) -> dict[str, object]:
    tree: dict[str, Any] = {"hosts.yml": GROUPS, "group_vars/tf_cluster.yml": variables}
    return tree


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program, and with what does not belong to it."""
    folder = tmp_path / "program"
    for name in ("main.py", "layers/dense.py", ".git/config", "__pycache__/main.pyc", ".venv/pyvenv.cfg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print('hello')\n", encoding="utf-8")
    return folder


def test_a_folder_gives_its_hash_and_what_the_tasks_are_told(
    program: Path, preflight: Preflight, show_plan: Path
) -> None:
    requirements = program.parent / "requirements.txt"
    requirements.write_text("rich==14.0.0\n", encoding="utf-8")
    files = with_variables(
        trainer_program=str(program),
        trainer_program_entry="layers/dense.py",
        trainer_program_arguments=["--layers", 3],
        trainer_program_flags="no",
        trainer_program_requirements=str(requirements),
    )
    before = facts(preflight(files, playbook=str(show_plan)))["program"]
    assert before == {
        "source": str(program),
        "entry": "layers/dense.py",
        "arguments": ["--layers", "3"],
        "flags": False,
        "requirements": str(requirements),
        "release": content_hash(program),
    }
    (program / ".git/config").write_text("else\n", encoding="utf-8")
    (program / "__pycache__/main.pyc").write_text("else\n", encoding="utf-8")
    assert facts(preflight(files, playbook=str(show_plan)))["program"] == before
    (program / "layers/dense.py").write_text("print('else')\n", encoding="utf-8")
    after = facts(preflight(files, playbook=str(show_plan)))["program"]
    assert after["release"] != before["release"]


def test_a_file_its_data_and_a_chief(tmp_path: Path, preflight: Preflight, show_plan: Path) -> None:
    program, data = tmp_path / "train.py", tmp_path / "digits.npz"
    program.write_text("print('hello')\n", encoding="utf-8")
    data.write_text("0 1 2\n", encoding="utf-8")
    tree: Any = hosts_file({}, {"node1": {}, "node2": {"trainer_data_dir": "/srv/data"}})
    tree["tf_cluster"]["children"] |= {"ps": {"hosts": {}}, "chief": {"hosts": {"node3": {}}}}
    options = ("-e", f"trainer_program={program}", "-e", f"trainer_data_source={data}")
    shown = facts(preflight({"hosts.yml": tree}, *options, playbook=str(show_plan)))
    assert placed(shown) == {"worker0": "node1:2222", "worker1": "node2:2222", "chief0": "node3:2222"}
    assert (shown["program"]["entry"], shown["program"]["release"]) == ("train.py", content_hash(program))
    carried = "/opt/psfleet/data"
    assert shown["data"] == {
        "source": str(data),
        "directories": {"node1": carried, "node2": "/srv/data", "node3": carried},
    }


def test_paths_are_those_of_the_shell(preflight: Preflight, show_plan: Path) -> None:
    # The tests type `ansible-playbook` in the repository, and the inventory is elsewhere.
    home = Path.home()
    files = with_variables(trainer_program="./trainer/exit_codes.py", trainer_data_source="~")
    shown = facts(preflight(files, playbook=str(show_plan)))
    here = Path(__file__).resolve().parents[2]
    assert shown["program"]["source"] == str(here / "trainer/exit_codes.py")
    assert shown["data"]["source"] == str(home)


def test_without_program_and_data_there_is_nothing_to_carry(preflight: Preflight, show_plan: Path) -> None:
    shown = facts(preflight({"hosts.yml": GROUPS}, playbook=str(show_plan)))
    assert (shown["program"], shown["data"]) == ({}, {})


def test_everything_wrong_with_the_files_is_said_with_what_else_is_wrong(
    program: Path, preflight: Preflight
) -> None:
    with (program / "weights.bin").open("wb") as stream:
        stream.truncate(101_000_000)
    (program.parent / "empty").mkdir()
    files = with_variables(
        trainer_program=str(program),
        trainer_program_entry=".venv/pyvenv.cfg",
        trainer_program_requirements="nowhere.txt",
        trainer_data_source=str(program.parent / "empty"),
        trainer_batch_size=0,
    )
    problems = refused(preflight(files))
    where = "group_vars/tf_cluster.yml"
    large = f"trainer_program is '{program}', which holds 101 MB (the largest file is weights.bin)"
    assert cure(problems, large, "trainer_data_source carries data").endswith(f"{where}:1")
    assert cure(problems, "trainer_program_entry is '.venv/pyvenv.cfg', which is left out").endswith(":2")
    assert cure(problems, "trainer_program_requirements is 'nowhere.txt'", "/nowhere.txt").endswith(":3")
    assert cure(problems, "trainer_data_source is", "which is empty").endswith(f"{where}:4")
    assert cure(problems, "trainer_batch_size is 0").endswith(f"{where}:5")
    assert len(problems) == 5


def test_files_that_are_not_there(program: Path, preflight: Preflight) -> None:
    problems = refused(
        preflight(with_variables(trainer_program="nowhere/train.py"), "-e", "trainer_data_source=/nowhere")
    )
    found = cure(
        problems, "trainer_program is 'nowhere/train.py', and there is no /", "a Python file, or a folder"
    )
    assert found.endswith("tf_cluster.yml:1")
    on_command_line = cure(problems, "trainer_data_source is '/nowhere', and there is no /nowhere")
    assert on_command_line == "given with -e on the command line"
    (program / "main.py").unlink()
    problems = refused(preflight(with_variables(trainer_program=str(program))))
    cure(problems, f"trainer_program_entry is 'main.py', and there is no file {program}/main.py")


def test_a_virtual_environment_is_no_program(program: Path, preflight: Preflight) -> None:
    venv.create(program / "environment", symlinks=True)
    problems = refused(preflight(with_variables(trainer_program=str(program))))
    found = f"which holds the virtual environment {program}/environment; expected the program alone"
    cure(problems, f"trainer_program is '{program}', {found}")


def test_a_link_to_a_folder_is_named(program: Path, preflight: Preflight) -> None:
    (program / "data").symlink_to("/tmp")
    problems = refused(preflight(with_variables(trainer_program=str(program))))
    cure(problems, f"trainer_program is '{program}', where", "link to a folder")

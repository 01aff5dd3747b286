"""The module host_steps, in this process and as Ansible ships it to a host, which is this machine."""

import ast
import io
import json
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from plugins.modules import host_steps
from plugins.plugin_utils.reaching import hindrance
from psfleet.run.host_answers import ANSWERS
from tests.repository import ROOT, played, written_play

STEPS = sorted(path.stem for path in (ROOT / "plugins" / "module_utils" / "steps").glob("*.py"))
NOTHING: dict[str, Any] = {"directories": [], "files": [], "only": [], "kept": []}
# The name of a step, and its arguments.
Asked = tuple[str, dict[str, Any]]


def answers(*asked: Asked, check_mode: bool = False) -> list[dict[str, Any]]:
    """Return the module's answers to these steps."""
    given: dict[str, Any] = {"steps": [{"step": step, "arguments": arguments} for step, arguments in asked]}
    given |= {"_ansible_check_mode": check_mode, "_ansible_diff": True, "_ansible_remote_tmp": "/tmp"}
    printed = io.StringIO()
    with patch_module_args(given), redirect_stdout(printed), suppress(SystemExit):
        host_steps.main()
    told: list[dict[str, Any]] = json.loads(printed.getvalue())["answers"]
    return told


@pytest.mark.parametrize("step", STEPS)
def test_each_step_is_shipped_and_its_answer_is_described(step: str) -> None:
    """Ansible ships what the module imports; the answer of a step is described under the step's name."""
    tree = ast.parse((ROOT / "plugins" / "modules" / "host_steps.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    shipped = {name.name for node in imports if node.module == "module_utils.steps" for name in node.names}
    assert step in shipped
    assert import_module(f"plugins.module_utils.steps.{step}").run
    assert any(name.partition(" ")[0] == step for name in ANSWERS)


def test_a_python_that_is_too_old_is_reported_before_a_step_is_imported() -> None:
    assert host_steps.python_problem((3, 10, 0)) == ""
    said = host_steps.python_problem((3, 9, 2))
    assert said == "psfleet needs Python 3.10 or newer there, and its Python is 3.9.2"
    assert hindrance({"msg": said}).startswith(f"{said}: set ansible_python_interpreter")


def test_steps_run_up_to_the_first_failure(tmp_path: Path) -> None:
    def made(name: str, **other: str) -> Asked:
        return "managed_files", NOTHING | {"files": [{"path": f"{tmp_path}/{name}", "content": "x", **other}]}

    asked = [made("a", mode="0600"), made("b", mode="0600"), made("c", mode="0600", owner="nobody-has-it")]
    checked = answers(*asked[:2], check_mode=True)
    assert [answer["changed"] for answer in checked] == [True, True]
    assert not list(tmp_path.iterdir())
    first, second, third = answers(*asked, made("d", mode="0600"))
    assert (first["changed_paths"], second["changed_paths"]) == ([f"{tmp_path}/a"], [f"{tmp_path}/b"])
    assert third["failed"]
    assert "no user nobody-has-it" in third["msg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_step_that_needs_an_archive_ends_the_call_except_in_check_mode(tmp_path: Path) -> None:
    release = {"release": "0" * 12, "folder": f"{tmp_path}/releases", "package": "", "link": ""}
    asked: list[Asked] = [("content_release", release), ("managed_files", NOTHING)]
    assert [answer.get("needs_archive") for answer in answers(*asked)] == [True]
    assert [answer.get("needs_archive") for answer in answers(*asked, check_mode=True)] == [True, None]


@pytest.mark.slow
@pytest.mark.parametrize("pipelining", ["true", "false"])
def test_arguments_of_a_step_are_validated_on_the_host_and_have_defaults(
    tmp_path: Path, pipelining: str
) -> None:
    made: dict[str, Any] = {"path": f"{tmp_path}/~/file", "content": "{{ 'a' ~ 'b' }}"}
    arguments: list[dict[str, Any]] = [
        {"directories": [{"path": f"{tmp_path}/~"}], "files": [made]},
        {"files": [made | {"encoding": "morse"}]},
        {"file": made},
    ]
    asked = [{"step": "managed_files", "arguments": each} for each in arguments]
    tasks = [{"psfleet.cluster.host_step": each, "ignore_errors": True} for each in asked]
    inventory = tmp_path / "hosts.json"
    here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    inventory.write_text(json.dumps({"all": {"hosts": {"here": here}}}))
    done = played(written_play(tmp_path, *tasks), "-i", inventory, ANSIBLE_PIPELINING=pipelining)
    assert (tmp_path / "~" / "file").read_text() == "ab", done.stdout
    assert (tmp_path / "~" / "file").stat().st_mode & 0o777 == 0o644
    assert "value of encoding must be one of: text, base64, got: morse" in done.stdout, done.stdout
    assert "file. Supported parameters include: directories, files, kept, only" in done.stdout

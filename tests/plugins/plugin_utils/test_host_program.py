"""Modules run by Python alone, as the host would, and by ansible-playbook on this machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugins.plugin_utils.host_program import BOOT, Call, program
from plugins.plugin_utils.reaching import hindrance
from tests.repository import ROOT, played, written_play

MODULES = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("*.py"))
NOTHING: dict[str, Any] = {"directories": [], "files": [], "only": [], "kept": []}


def ran(*calls: Call, check_mode: bool = False) -> subprocess.CompletedProcess[bytes]:
    """Run modules by a Python that finds no package, not even Ansible's."""
    command = [sys.executable, "-I", "-S", "-c", BOOT]
    sent = program(calls, check_mode=check_mode)
    return subprocess.run(command, input=sent, capture_output=True, check=False, timeout=60)


def answers(*calls: Call, check_mode: bool = False) -> list[dict[str, Any]]:
    """Return what modules answer to their calls."""
    told: list[dict[str, Any]] = json.loads(ran(*calls, check_mode=check_mode).stdout)["answers"]
    return told


@pytest.mark.parametrize("module", MODULES)
def test_a_module_needs_no_more_than_python(module: str) -> None:
    # It has come to its first parameter, and none was told.
    assert b"\nKeyError: " in ran((module, {})).stderr


def test_a_python_that_is_too_old_says_so_before_a_module_is_read() -> None:
    older = f"import sys; sys.version_info, sys.version = (3, 9, 2), '3.9.2 (old)'\n{BOOT}"
    sent = program([("managed_files", NOTHING)])
    done = subprocess.run([sys.executable, "-IS", "-c", older], input=sent, capture_output=True, check=False)
    said = f"psfleet needs Python 3.10 or newer there, and {sys.executable} is 3.9.2"
    assert (done.returncode, done.stdout, done.stderr.decode().strip()) == (1, b"", said)
    assert hindrance({"stderr": said, "rc": 1}).startswith(f"{said}: set ansible_python_interpreter")


def test_several_are_run_up_to_the_first_that_fails(tmp_path: Path) -> None:
    def made(name: str, **other: str) -> Call:
        return "managed_files", NOTHING | {"files": [{"path": f"{tmp_path}/{name}", "content": "x", **other}]}

    calls = [made("a", mode="0600"), made("b", mode="0600"), made("c", mode="0600", owner="nobody-has-it")]
    checked = answers(*calls[:2], check_mode=True)
    assert [answer["changed"] for answer in checked] == [True, True]
    assert not list(tmp_path.iterdir())
    first, second, third = answers(*calls, made("d", mode="0600"))
    assert (first["changed_paths"], second["changed_paths"]) == ([f"{tmp_path}/a"], [f"{tmp_path}/b"])
    assert third["failed"]
    assert "no user nobody-has-it" in third["msg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_who_needs_an_archive_is_the_last_but_in_a_check(tmp_path: Path) -> None:
    release = {"release": "0" * 12, "folder": f"{tmp_path}/releases", "package": "", "link": "", "keep": 3}
    calls: list[Call] = [
        ("content_release", release | {"archive": None, "named_in": []}),
        ("managed_files", NOTHING),
    ]
    assert [answer.get("needs_archive") for answer in answers(*calls)] == [True]
    assert [answer.get("needs_archive") for answer in answers(*calls, check_mode=True)] == [True, None]


def test_each_module_has_an_action_that_looks_at_its_answer() -> None:
    routed = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())["plugin_routing"]["modules"]
    own = {path.stem for path in (ROOT / "plugins" / "action").glob("*.py")}
    assert {module for module in MODULES if module not in own} == routed.keys()


@pytest.mark.slow
@pytest.mark.parametrize("pipelining", ["true", "false"])
def test_by_either_way_arguments_are_looked_at_and_have_their_defaults(
    tmp_path: Path, pipelining: str
) -> None:
    made: dict[str, Any] = {"path": f"{tmp_path}/~/file", "content": "{{ 'a' ~ 'b' }}"}
    arguments: list[dict[str, Any]] = [
        {"directories": [{"path": f"{tmp_path}/~"}], "files": [made]},
        {"files": [made | {"encoding": "morse"}]},
        {"file": made},
    ]
    tasks = [{"psfleet.cluster.managed_files": each, "ignore_errors": True} for each in arguments]
    inventory = tmp_path / "hosts.json"
    here = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    inventory.write_text(json.dumps({"all": {"hosts": {"here": here}}}))
    done = played(written_play(tmp_path, *tasks), "-i", inventory, ANSIBLE_PIPELINING=pipelining)
    assert (tmp_path / "~" / "file").read_text() == "ab", done.stdout
    assert (tmp_path / "~" / "file").stat().st_mode & 0o777 == 0o644
    assert "value of encoding must be one of: text, base64, got: morse" in done.stdout, done.stdout
    assert "file. Supported parameters include: directories, files, kept, only" in done.stdout

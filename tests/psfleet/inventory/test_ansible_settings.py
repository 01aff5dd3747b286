import os
import subprocess
import sys
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path

import pytest

from psfleet.inventory.ansible_settings import (
    DANGERS,
    ConfigurationFile,
    UnsafeSetting,
    missing_lines,
    parse_configuration,
    refusal,
)
from tests.psfleet.inventory.checked import hosts_file, written
from tests.repository import ROOT

OURS = (ROOT / "ansible.cfg").read_text()
COMFORT = "[defaults]\nforks = 50\ninterpreter_python = auto_silent\n[connection]\npipelining = True\n"


def test_the_configuration_of_the_clone_lacks_no_line() -> None:
    assert missing_lines(OURS, OURS, {}, {}) == []


@pytest.mark.parametrize(
    ("theirs", "environment", "lacks"),
    [
        ("", [], [*COMFORT.splitlines()]),
        (
            "[defaults]\nforks = 5\n",
            ["ANSIBLE_PIPELINING"],
            ["[defaults]", "interpreter_python = auto_silent"],
        ),
        # In whichever section, as Ansible takes it in several.
        ("[ssh_connection]\npipelining=false ; mine\n", ["ANSIBLE_PYTHON_INTERPRETER", "ANSIBLE_FORKS"], []),
    ],
)
def test_settings_that_the_user_has_made_are_not_listed_as_missing(
    theirs: str, environment: list[str], lacks: list[str]
) -> None:
    ours = f"{COMFORT}[defaults]\ninventory = x\nhost_key_checking = True\n"
    assert missing_lines(ours, theirs, environment, {}) == lacks


def test_settings_required_for_safety_are_listed_whatever_the_user_has_set() -> None:
    lines = missing_lines(
        OURS, OURS.replace("host_key_checking = True", "host_key_checking = no"), {}, DANGERS
    )
    wanted = ["inject_facts_as_vars = False", "host_key_checking = True"]
    assert lines == ["[defaults]", *wanted, "strategy = linear", "fact_caching = memory"]


def test_the_listed_lines_are_a_readable_configuration() -> None:
    text = "\n".join(missing_lines(OURS, "", {}, DANGERS))
    there = ConfigParser(interpolation=None)
    there.read_string(text)
    assert {*parse_configuration(OURS).sections()} == {*there.sections()}
    assert (
        there["defaults"].keys() | {"inventory", "collections_path"}
        == parse_configuration(OURS)["defaults"].keys()
    )


# What a user has by mistake: variables of the environment, the ansible.cfg (None: none) and the mode of its
# folder. Then what the playbook says of it, and what it does not say.
CLONE = f"Type the command in {ROOT}, whose ansible.cfg has what is needed; or copy the lines above into "
UNSAFE: dict[str, tuple[dict[str, str], str | None, int, list[str], list[str]]] = {
    "one variable": (
        {"ANSIBLE_HOST_KEY_CHECKING": "False"},
        OURS,
        0o755,
        [
            "host_key_checking is false, by ANSIBLE_HOST_KEY_CHECKING in the environment: an attacker",
            "Type `unset ANSIBLE_HOST_KEY_CHECKING`, and remove that from where your shell sets it",
        ],
        ["opy the lines above", "To be copied"],
    ),
    "every setting": (
        {
            "ANSIBLE_INJECT_FACT_VARS": "1",
            "ANSIBLE_HOST_KEY_CHECKING": "0",
            "ANSIBLE_SSH_HOST_KEY_CHECKING": "no",
            "ANSIBLE_STRATEGY": "free",
            "ANSIBLE_CACHE_PLUGIN": "jsonfile",
            "ANSIBLE_CACHE_PLUGIN_CONNECTION": "facts",
        },
        OURS,
        0o755,
        [
            "Type `unset ANSIBLE_INJECT_FACT_VARS ANSIBLE_HOST_KEY_CHECKING ANSIBLE_SSH_HOST_KEY_CHECKING ",
            "ANSIBLE_STRATEGY ANSIBLE_CACHE_PLUGIN`",
        ],
        ["opy the lines above", "To be copied"],
    ),
    "a variable and the file": (
        {"ANSIBLE_STRATEGY": "host_pinned"},
        OURS.replace("strategy = linear", "strategy = free"),
        0o755,
        [
            "strategy is host_pinned, by ANSIBLE_STRATEGY in",
            "Type `unset ANSIBLE_STRATEGY`",
            "{folder}/ansible.cfg, and remove there: strategy = free in [defaults].",
        ],
        [],
    ),
    "a section that wins": (
        {},
        OURS.replace("[ssh_connection]", "[ssh_connection]\nhost_key_checking = false"),
        0o755,
        [
            "host_key_checking is false, by {folder}/ansible.cfg: an attacker",
            "and remove there: host_key_checking = false in [ssh_connection].",
        ],
        ["unset"],
    ),
    "arguments of ssh in a variable": (
        {"ANSIBLE_SSH_COMMON_ARGS": "-o StrictHostKeyChecking=no"},
        OURS,
        0o755,
        [
            "ssh_common_args has StrictHostKeyChecking=no, by ANSIBLE_SSH_COMMON_ARGS in the environment",
            "Remove it there.",
        ],
        ["opy the lines above", "To be copied"],
    ),
    "arguments of ssh in the file": (
        {},
        OURS.replace("ssh_args = ", "ssh_args = -oStrictHostKeyChecking=off "),
        0o755,
        ["ssh_args has StrictHostKeyChecking=no, by {folder}/ansible.cfg: an attacker"],
        ["opy the lines above", "To be copied"],
    ),
    "no file": ({}, None, 0o755, ["by Ansible's default", CLONE + "{folder}/ansible.cfg."], ["unset"]),
    "a file that Ansible ignores": (
        {},
        OURS,
        0o777,
        ["by Ansible's default", "type `chmod o-w {folder}`, because Ansible ignores an ansible.cfg where"],
        ["unset"],
    ),
    "a file of the environment": (
        {"ANSIBLE_CONFIG": "{folder}/own.cfg"},
        OURS,
        0o755,
        ["by Ansible's default", "Copy the lines above into {folder}/own.cfg."],
        [],
    ),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_the_remedy_for_an_unsafe_setting_fits_its_origin(case: str, tmp_path: Path) -> None:
    environment, configuration, mode, says, not_said = UNSAFE[case]
    written(tmp_path / "cluster", {"hosts.yml": hosts_file({"node1": {}}, {"node2": {}})})
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "collections").symlink_to(ROOT / "collections")
    (folder / "own.cfg").write_text("[defaults]\ncollections_path = collections\n")
    if configuration is not None:
        (folder / "ansible.cfg").write_text(configuration)
    folder.chmod(mode)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    own = {name: value.format(folder=folder) for name, value in environment.items()}
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "../cluster", ROOT / "status.yml"],
        cwd=folder,
        env=kept | {"ANSIBLE_NOCOLOR": "1", "HOME": str(tmp_path)} | own,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 2, said
    for words in says:
        assert words.format(folder=folder) in said
    for words in not_said:
        assert words not in said


def test_in_the_clone_the_remedy_names_no_lines_that_its_configuration_has() -> None:
    unsafe = UnsafeSetting("inject_facts_as_vars", "true", (), (), unsafe_without_environment=True)
    own = ConfigurationFile(
        "/home/me/.ansible.cfg", by_environment=True, folder=ROOT, open_folder=False, clone=ROOT
    )
    (_, remedy) = refusal([unsafe], own).split(". ", 1)
    assert remedy.startswith(
        f"Type `unset ANSIBLE_CONFIG`, so that {ROOT}/ansible.cfg is used again; or copy "
    )
    ignored = replace(own, path="", by_environment=False, open_folder=True)
    why = "because Ansible ignores an ansible.cfg where everybody may write."
    assert refusal([unsafe], ignored).split(". ", 1)[1] == f"Type `chmod o-w {ROOT}`, {why}"

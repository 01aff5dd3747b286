from configparser import ConfigParser

import pytest

from psfleet.inventory.ansible_settings import SAFE, lacking_lines, parsed
from tests.repository import ROOT

OURS = (ROOT / "ansible.cfg").read_text()
COMFORT = "[defaults]\nforks = 50\ninterpreter_python = auto_silent\n[connection]\npipelining = True\n"


def test_a_clone_lacks_nothing_of_its_own_configuration() -> None:
    assert lacking_lines(OURS, OURS, {}, {}) == []


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
def test_what_somebody_has_decided_is_not_told_again(
    theirs: str, environment: list[str], lacks: list[str]
) -> None:
    ours = f"{COMFORT}[defaults]\ninventory = x\nhost_key_checking = True\n"
    assert lacking_lines(ours, theirs, environment, {}) == lacks


def test_what_safety_needs_is_copied_though_it_was_decided() -> None:
    lines = lacking_lines(OURS, OURS.replace("host_key_checking = True", "host_key_checking = no"), {}, SAFE)
    wanted = ["inject_facts_as_vars = False", "host_key_checking = True"]
    assert lines == ["[defaults]", *wanted, "strategy = linear", "fact_caching = memory"]


def test_what_is_to_be_copied_can_be_read() -> None:
    text = "\n".join(lacking_lines(OURS, "", {}, SAFE))
    there = ConfigParser(interpolation=None)
    there.read_string(text)
    assert {*parsed(OURS).sections()} == {*there.sections()}
    assert there["defaults"].keys() | {"inventory", "collections_path"} == parsed(OURS)["defaults"].keys()

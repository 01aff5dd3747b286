from configparser import ConfigParser

import pytest

from psfleet.inventory.ansible_settings import SAFE, lacking_lines, parsed
from tests.repository import ROOT

OURS = (ROOT / "ansible.cfg").read_text()
COMFORT = "[defaults]\nforks = 50\ninterpreter_python = auto_silent\n[connection]\npipelining = True\n"


def test_the_configuration_of_the_clone_lacks_no_line() -> None:
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
def test_settings_that_the_user_has_made_are_not_listed_as_missing(
    theirs: str, environment: list[str], lacks: list[str]
) -> None:
    ours = f"{COMFORT}[defaults]\ninventory = x\nhost_key_checking = True\n"
    assert lacking_lines(ours, theirs, environment, {}) == lacks


def test_settings_required_for_safety_are_listed_whatever_the_user_has_set() -> None:
    lines = lacking_lines(OURS, OURS.replace("host_key_checking = True", "host_key_checking = no"), {}, SAFE)
    wanted = ["inject_facts_as_vars = False", "host_key_checking = True"]
    assert lines == ["[defaults]", *wanted, "strategy = linear", "fact_caching = memory"]


def test_the_listed_lines_are_a_readable_configuration() -> None:
    text = "\n".join(lacking_lines(OURS, "", {}, SAFE))
    there = ConfigParser(interpolation=None)
    there.read_string(text)
    assert {*parsed(OURS).sections()} == {*there.sections()}
    assert there["defaults"].keys() | {"inventory", "collections_path"} == parsed(OURS)["defaults"].keys()

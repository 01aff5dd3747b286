"""The rooms in which mutants are made."""

import pytest

from tests.repository import ROOT
from tools import mutants


@pytest.mark.parametrize("room", mutants.ROOMS)
def test_a_room_has_tests_of_its_own(room: str) -> None:
    assert (ROOT / room).is_dir()
    assert list((ROOT / "tests" / room).glob("test_*.py"))
    assert (ROOT / mutants.LEFT_OUT).is_dir()


@pytest.mark.parametrize("name", ["psfleet/watch", "psfleet/evidence/nothing.py", "psfleet/evidences"])
def test_what_is_no_such_room_or_file_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main([name]) == 2
    assert capsys.readouterr().err.startswith(f"{name} is neither one of psfleet/evidence, ")

"""The rooms in which mutants are made."""

import pytest

from tests.repository import ROOT
from tools import mutants


@pytest.mark.parametrize("room", mutants.ROOMS)
def test_each_room_of_mutants_has_its_own_tests(room: str) -> None:
    assert (ROOT / room).is_dir()
    assert list((ROOT / "tests" / room).glob("test_*.py"))
    assert (ROOT / mutants.LEFT_OUT).is_dir()


@pytest.mark.parametrize("name", ["psfleet/watch", "psfleet/evidence/nothing.py", "psfleet/evidences"])
def test_an_unknown_room_or_file_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main([name]) == 2
    assert capsys.readouterr().err.startswith(f"{name} is neither one of psfleet/evidence, ")

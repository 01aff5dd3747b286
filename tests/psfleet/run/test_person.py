import socket
from datetime import datetime, timezone

import pytest

from plugins.module_utils.people import BEGUN, PERSON
from psfleet.run.person import beginning, person

NOW = datetime(2026, 11, 25, 9, 12, 59, tzinfo=timezone.utc)
ANA = "ana@desk, 2026-11-25 09:12 UTC"


@pytest.mark.parametrize(
    ("login", "came", "named"),
    [
        ("ana", "", "ana"),
        ("cluster", "ana", "ana as cluster"),
        ("root", "root", "root"),
        ('a"\n$(sh)\x1b[2J', "", "a____sh___2J"),
        ("ä" * 99, "", "_" * 80),
    ],
)
def test_the_person_at_the_controller_is_named_with_safe_characters_only(
    monkeypatch: pytest.MonkeyPatch, login: str, came: str, named: str
) -> None:
    monkeypatch.setenv("LOGNAME", login)
    monkeypatch.setenv("SUDO_USER", came)
    machine = person().removeprefix(f"{named}@")
    assert machine == socket.gethostname()
    assert PERSON.fullmatch(person())
    assert BEGUN.fullmatch(beginning({}, person(), NOW))


@pytest.mark.parametrize(
    ("settings", "by", "told"),
    [
        ({}, "ana@desk", ANA),
        ({"begun": ANA.replace("25", "24")}, "ana@desk", ANA.replace("25", "24")),
        ({"begun": ANA}, "bob@ws", ANA.replace("ana@desk", "bob@ws")),
        ({"begun": [7]}, "ana@desk", ANA),
        ({"begun": 'ana@desk, "\n'}, "ana@desk", ANA),
    ],
)
def test_the_person_who_resumes_a_run_is_recorded_as_its_beginner(
    settings: dict[str, object], by: str, told: str
) -> None:
    assert beginning(settings, by, NOW) == told

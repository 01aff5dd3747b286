"""`program.json` is read as it was written, or refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.run_program import RunProgram

WHOLE = RunProgram(
    release="abc",
    file="/opt/psfleet/programs/abc/train.py",
    arguments=("--rate", "0.1"),
    flags=False,
    observed=True,
    name="mnist",
    environment={"A": "1"},
    tensorflow1=True,
    end_deadline_minutes=2.5,
    collect=("results",),
)
LEAST = {"release": "abc", "file": "/main.py", "arguments": [], "flags": True, "observed": False}


def test_a_program_survives_a_round_trip_through_json() -> None:
    assert RunProgram.from_json(json.loads(json.dumps(WHOLE.to_json()))) == WHOLE


def test_a_program_written_by_an_older_or_newer_release_is_accepted() -> None:
    taken = RunProgram.from_json({**LEAST, "of_a_newer_release": 1})
    assert (taken.name, taken.environment, taken.end_deadline_minutes) == ("", {}, 60)
    assert "of_a_newer_release" not in taken.to_json()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], r"\[\] is not an object"),
        ({**LEAST, "arguments": "--rate"}, "arguments is '--rate'; expected a list of entries, each a text"),
        ({**LEAST, "arguments": [1]}, r"arguments\[0\] is 1; expected a text"),
        ({**LEAST, "environment": {"A": 1}}, r"environment\['A'\] is 1; expected a text"),
        (
            {**LEAST, "file": "main.py", "flags": 3},
            "file is 'main.py'; .*; flags is 3; expected true or false",
        ),
        ({**LEAST, "end_deadline_minutes": -1}, "end_deadline_minutes is -1; expected a number >= 0"),
        *(
            ({name: value for name, value in LEAST.items() if name != lost}, f"{lost} is missing")
            for lost in LEAST
        ),
    ],
)
def test_a_damaged_program_is_refused(content: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=f"^{said}"):
        RunProgram.from_json(content)


@pytest.mark.parametrize(
    ("release", "folder"), [("c0ffee", "c0ffee"), ("other", "c0ffee/lab"), ("", "c0ffee/lab")]
)
def test_the_folder_of_a_program_has_the_name_of_its_release(release: str, folder: str) -> None:
    program = replace(WHOLE, release=release, file="/opt/psfleet/programs/c0ffee/lab/train.py")
    assert program.folder == Path("/opt/psfleet/programs", folder)

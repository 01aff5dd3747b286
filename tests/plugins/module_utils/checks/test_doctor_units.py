import json
from pathlib import Path

import pytest

from plugins.module_utils.checks import doctor_units
from plugins.module_utils.checks.doctor_units import NAMES, ask_tensorflow, read_answer
from plugins.module_utils.content_directory import locked

WELL = {"LoadState": "loaded", "Result": "success", "ExecMainCode": "1", "ExecMainStatus": "0"}
ANSWER = json.dumps(
    {"checks": [{"name": name, "state": "ok", "found": f"{name} is well", "remedy": ""} for name in NAMES]}
)


def states(output: Path, **unit: str) -> dict[str, str]:
    return {check.name: check.state for check in read_answer(output, {**WELL, **unit})}


def test_the_answer_is_found_among_log_lines_of_libraries(tmp_path: Path) -> None:
    output = tmp_path / "doctor-worker-0.out"
    output.write_text(f"I0000 cpu_feature_guard\n{ANSWER}\nW0000 a thread ends late\n")
    assert states(output) == dict.fromkeys(NAMES, "ok")


def test_a_finding_that_is_no_text_is_converted_to_text(tmp_path: Path) -> None:
    output = tmp_path / "doctor-worker-0.out"
    output.write_text('{"checks": [{"name": "x", "state": "ok", "found": [1]}]}\n')
    assert [check.found for check in read_answer(output, WELL)] == ["[1]"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of use\n",
        "[1, 2]\n",
        '{"checks": 7}\n',
        '{"checks": []}\n',
        '{"checks": [{"name": "x"}]}\n',
        '{"checks": [{"name": "x", "state": "grand", "found": ""}]}\n',
        '{"checks": [{"name": "x", "state": "ok", "found": "\\ud800"}]}\n',
        ANSWER[:-5],
    ],
)
def test_an_invalid_answer_is_a_failure(tmp_path: Path, text: str) -> None:
    output = tmp_path / "doctor-worker-0.out"
    output.write_text(text)
    found = states(output)
    assert found == {
        "tensorflow": "failed",
        "libraries": "skipped",
        "devices": "skipped",
        "product": "skipped",
    }


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (
            {"Result": "signal", "ExecMainCode": "2", "ExecMainStatus": "4"},
            "was ended by signal 4 (Illegal instruction): it began | its last words",
        ),
        (
            {"Result": "core-dump", "ExecMainCode": "3", "ExecMainStatus": "11"},
            "was ended by signal 11 (Segmentation fault)",
        ),
        ({"Result": "exit-code", "ExecMainStatus": "1"}, "ended with exit code 1: it began | its last words"),
        ({"Result": "timeout"}, "took longer than its unit allows"),
        ({"Result": "resources"}, "could not be run (resources)"),
    ],
)
def test_the_end_of_a_process_without_an_answer_is_reported(
    tmp_path: Path, unit: dict[str, str], words: str
) -> None:
    output = tmp_path / "doctor-worker-0.out"
    output.write_text("it began\nits last words\n")
    first, *rest = read_answer(output, {**WELL, **unit})
    assert (first.name, first.state) == ("tensorflow", "failed")
    assert f"python -m trainer.doctor {words}" in first.found
    assert f"{tmp_path}/doctor-<job>-<index>.out" in first.remedy
    assert {check.state for check in rest} == {"skipped"}


@pytest.mark.parametrize("result", ["resources", "exit-code", "timeout"])
def test_an_earlier_answer_does_not_count_if_the_unit_failed(tmp_path: Path, result: str) -> None:
    output = tmp_path / "doctor-worker-0.out"
    output.write_text(f"{ANSWER}\n")
    assert states(output, Result=result)["tensorflow"] == "failed"


def test_a_link_in_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(ANSWER)
    (tmp_path / "doctor-worker-0.out").symlink_to(tmp_path / "elsewhere")
    assert states(tmp_path / "doctor-worker-0.out")["tensorflow"] == "failed"


def test_checks_are_skipped_if_an_older_deployment_has_no_unit_for_them(tmp_path: Path) -> None:
    checks = read_answer(tmp_path / "doctor-worker-0.out", {"LoadState": "not-found"})
    assert {check.state for check in checks} == {"skipped"}
    assert checks[0].found == "its unit is not-found: deployed by an older psfleet"


def test_a_lock_held_by_another_doctor_is_reported_after_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_units, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(doctor_units, "SECONDS_TO_ANSWER", 0)
    with locked(tmp_path / "lock", 0):
        first, *rest = ask_tensorflow(["worker-0"], tmp_path)
    assert (first.task, first.name, first.state) == ("worker0", "tensorflow", "failed")
    assert f"{tmp_path}/lock has been locked for 0 s" in first.found
    assert {check.state for check in rest} == {"skipped"}

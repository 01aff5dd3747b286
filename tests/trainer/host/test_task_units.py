from pathlib import Path

import pytest

from trainer.host import task_units


def test_the_output_of_systemctl_for_several_units_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    shown = "\nActiveState=active\nEnvironment=A=1\nnothing\n\n\n\nActiveState=failed\n"
    program.write_text(f"#!/bin/sh\nprintf '%s ' \"$@\"; echo '{shown}'; echo complaint >&2; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert task_units.systemctl("show", "a b") == f"show a b {shown}\n"
    assert task_units.parse_show(shown) == [
        {"ActiveState": "active", "Environment": "A=1"},
        {"ActiveState": "failed"},
    ]
    with pytest.raises(task_units.SystemdError, match=r"^complaint$"):
        task_units.systemctl_strictly("show")
    listed = "psfleet-ps@0.service loaded active running\n\nb.service not-found inactive\n"
    assert task_units.parse_list(listed) == ["psfleet-ps@0.service", "b.service"]


@pytest.mark.parametrize(
    ("state", "job", "alive"),
    [
        ("active", "0", True),
        ("activating", "12", True),
        ("inactive", "12", True),
        ("inactive", "0", False),
        ("inactive", "", False),
        ("failed", "0", False),
    ],
)
def test_a_task_with_a_queued_start_job_is_alive(state: str, job: str, *, alive: bool) -> None:
    assert task_units.is_alive({"ActiveState": state, "Job": job}) is alive
    assert task_units.is_alive({"ActiveState": state}) is (state in {"active", "activating"})


def test_units_and_files_of_tasks_are_known_by_their_names() -> None:
    assert task_units.task_of(task_units.unit_name("ps", 3)) == ("ps", 3)
    names = ["psfleet-server@11.service", "chief-0.env", "evaluation-0.env"]
    assert [task_units.task_of(name) for name in names] == [("server", 11), ("chief", 0), ("evaluation", 0)]
    jobs = ("evaluator", "evaluation", "ps")
    assert [task_units.task_name(job, 0) for job in jobs] == ["evaluator0", "evaluator0", "ps0"]
    others = ["psfleet-journal@ps0.service", "program.json"]
    assert [task_units.task_of(name) for name in others] == [None, None]

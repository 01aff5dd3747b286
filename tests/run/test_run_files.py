import json
from typing import Any

from plugins.filter.run_files import evaluator_files, run_environment_paths, run_files

TASKS = [{"name": "ps0", "job": "ps", "index": 0}, {"name": "server1", "job": "server", "index": 1}]


def files(program: dict[str, Any] | None = None) -> dict[str, str]:
    settings = {"tasks": {"ps0": {"flags": "--a=1"}, "server1": {"flags": "--a=2 --b=3"}}, "program": program}
    run = {"id": "r1", "settings": settings}
    return {
        file["path"]: file["content"]
        for file in run_files(TASKS, "/etc/psfleet", run, "/var/lib/psfleet", "trainer")
    }


def test_each_task_is_told_its_run_and_its_flags() -> None:
    found = files()
    assert list(found) == ["/etc/psfleet/run/ps-0.env", "/etc/psfleet/run/server-1.env"]
    lines = found["/etc/psfleet/run/server-1.env"].splitlines()
    assert 'PSFLEET_RUN_ID="r1"' in lines
    assert 'PSFLEET_RUN_DIRECTORY="/var/lib/psfleet/runs/r1"' in lines
    assert 'PSFLEET_TRAINING_FLAGS="--a=2 --b=3"' in lines


def test_tasks_of_a_program_are_told_where_it_is_described() -> None:
    program = {"release": "abc", "file": "/opt/p/abc/main.py", "arguments": ['say "hi"'], "flags": False}
    found = files(program)
    assert "--a=1 --program=/etc/psfleet/run/program.json" in found["/etc/psfleet/run/ps-0.env"]
    assert json.loads(found["/etc/psfleet/run/program.json"]) == program


def test_a_programs_arguments_are_read_by_its_user_alone() -> None:
    settings = {"tasks": {"ps0": {"flags": ""}}, "program": {"arguments": ["--key=1"]}}
    (environment, program) = run_files(
        TASKS[:1], "/etc/psfleet", {"id": "r1", "settings": settings}, "/var/lib/psfleet", "trainer"
    )
    assert (program["group"], program["mode"]) == ("trainer", "0640")
    assert "--key" not in environment["content"]


def test_a_host_without_a_task_in_the_run_gets_no_file() -> None:
    run = {"id": "r1", "settings": {"tasks": {}, "program": {"release": "abc"}}}
    assert run_files([], "/etc/psfleet", run, "/var/lib/psfleet", "trainer") == []


def test_the_evaluator_is_told_its_run_and_to_leave_the_gpus_alone() -> None:
    (file,) = evaluator_files("/etc/psfleet", {"id": "r1"}, "/var/lib/psfleet")
    assert file["path"] == "/etc/psfleet/run/evaluator-0.env"
    lines = file["content"].splitlines()
    assert 'PSFLEET_RUN_DIRECTORY="/var/lib/psfleet/runs/r1"' in lines
    assert 'CUDA_VISIBLE_DEVICES=""' in lines


def test_what_train_has_written_is_found_where_it_was_written() -> None:
    assert run_environment_paths(TASKS, "/etc/psfleet") == list(files())

"""The test runner: its counts, and that no failed or skipped test counts as passed."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.repository import ROOT
from tools import matrix, run_tests, things_to_know
from tools.run_tests import Count

# Sets what `molecule` says and its exit status; lists the subcommands it was called with.
Molecule = tuple[Callable[[str, int], None], Callable[[], list[str]]]


@pytest.mark.parametrize(
    ("said", "returncode", "expected"),
    [
        ("5 passed in 1.20s", 0, Count(5, 0, 0)),
        ("1 failed, 2 passed, 1 skipped, 1 error in 1.20s", 1, Count(2, 2, 1)),
        ("no tests ran in 0.01s", 5, Count(0, 1, 0)),
        ("3 passed in 1.20s", 2, Count(3, 1, 0)),  # interrupted after three
        ("Fatal Python error: Segmentation fault", 139, Count(0, 1, 0)),
    ],
)
def test_pytest_is_counted_by_its_last_line(said: str, returncode: int, expected: Count) -> None:
    assert run_tests.count_tests(f"9 failed in another line\n{said}\n", returncode) == expected


def test_every_stage_runs_and_one_failure_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = {"lint": lambda: Count(1, 1), "unit": lambda: Count(3, 0, 2)}
    monkeypatch.setattr(run_tests, "STAGES", stages)
    assert run_tests.main(["lint", "unit"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "4 passed, 1 failed"


def test_a_run_without_tests_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "STAGES", {"lint": Count})
    assert run_tests.main(["lint"]) == 1


def test_an_unknown_stage_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["lnit"]) == 2
    assert "lnit" in capsys.readouterr().out


@pytest.fixture
def molecule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Molecule:
    """A `molecule` that prints the text and exits with the code of the test."""
    calls = tmp_path / "calls"

    def say(text: str, code: int) -> None:
        program = tmp_path / "molecule"
        program.write_text(f'#!/bin/sh\necho "$1" >> {calls}\nprintf "%b" "{text}"\nexit {code}\n')
        program.chmod(0o755)

    monkeypatch.setattr(run_tests, "BIN", tmp_path)
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "LOGS", tmp_path / "logs")
    return say, lambda: calls.read_text().split()


def test_a_nice_command_also_lowers_the_priority_of_its_session(tmp_path: Path) -> None:
    """Between sessions the niceness of the autogroup counts, if the kernel has autogroups."""
    log = tmp_path / "log"
    shown = f"until [ $(nice) = {run_tests.NICENESS} ]; do sleep 0.1; done; cat /proc/self/autogroup || true"
    command = ["timeout", "60", "sh", "-c", shown]
    assert run_tests.stream(command, log, niceness=run_tests.NICENESS) == 0
    if Path("/proc/self/autogroup").exists():
        assert re.fullmatch(rf"/autogroup-\d+ nice {run_tests.NICENESS}\n", log.read_text())


def test_a_scenario_that_passed_is_not_destroyed_again(
    molecule: Molecule, capsys: pytest.CaptureFixture[str]
) -> None:
    say, calls = molecule
    say("INFO     [default > converge] Executed: Successful\\n", 0)
    assert run_tests.run_scenario("default")
    assert calls() == ["test"]
    assert "default converge: successful" in capsys.readouterr().out


def test_a_missing_playbook_fails_the_scenario_though_molecule_reports_success(molecule: Molecule) -> None:
    say, calls = molecule
    say(
        "WARNING  [default > side_effect] Executed: Missing playbook (Remove from ...)\\n",
        0,
    )
    assert not run_tests.run_scenario("default")
    assert calls() == ["test", "destroy"]


def test_a_failed_scenario_is_destroyed_and_its_end_is_shown(
    molecule: Molecule, capsys: pytest.CaptureFixture[str]
) -> None:
    say, calls = molecule
    end = "ERROR    [default > converge] Executed: Failed\\nthe tidying up\\n"
    say(f"a long story\\nthe reason\\n{end}", 2)
    assert not run_tests.run_scenario("default")
    assert calls() == ["test", "destroy"]
    shown = capsys.readouterr().out
    assert "the reason" in shown
    assert "the tidying up" not in shown


def test_running_scenarios_are_ended_and_destroyed_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    molecule, kept = tmp_path / "bin" / "molecule", run_tests.SCENARIOS[0]
    molecule.write_text(
        f'#!/bin/sh\necho "$1 $3" >> {tmp_path}/calls\necho "[{kept} > {run_tests.KEPT[0]}"\n'
        '[ "$1" = destroy ] || exec sleep 600\n'
    )
    molecule.chmod(0o755)
    tests = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import pathlib, signal, sys; sys.path.insert(0, {str(run_tests.ROOT)!r})\n"
            "from tools import run_tests\n"
            f"run_tests.ROOT = pathlib.Path({str(tmp_path)!r})\n"
            "run_tests.BIN, run_tests.LOGS = run_tests.ROOT / 'bin', run_tests.ROOT / 'logs'\n"
            "signal.signal(signal.SIGTERM, run_tests.end_on_signal)\n"
            "run_tests.main(['molecule'])",
        ]
    )
    calls = tmp_path / "calls"
    deadline = time.monotonic() + 60
    while not calls.exists() or len(calls.read_text().splitlines()) < len(run_tests.SCENARIOS):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tests.terminate()
    assert tests.wait(timeout=60) == 128 + signal.SIGTERM
    expected = {f"{what} {name}" for name in run_tests.SCENARIOS for what in ("test", "destroy")}
    assert sorted(calls.read_text().splitlines()) == sorted(expected)


@pytest.mark.parametrize("kept", run_tests.KEPT)
def test_scenarios_begin_once_the_installation_of_the_first_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kept: str
) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    begun: list[str] = []

    def run_scenario(scenario: str) -> bool:
        begun.append(scenario)
        if scenario == "bare":
            time.sleep(1)
            assert begun == ["bare"]
            (tmp_path / "molecule bare.log").write_text(f"[bare > {kept}\n")
            while len(begun) < 2:
                time.sleep(0.05)
        return True

    monkeypatch.setattr(run_tests, "run_scenario", run_scenario)
    assert run_tests.run_scenarios(["bare", "other"]) == Count(2, 0)


def test_the_first_scenario_says_whether_others_need_it() -> None:
    create = (ROOT / "molecule" / "shared" / "create.yml").read_text()
    assert f"msg: {run_tests.KEPT[1]}\n" in create


def test_no_scenario_begins_once_the_end_was_requested(
    molecule: Molecule, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    molecule[0]("$(sleep 600)", 0)
    monkeypatch.setattr(run_tests, "ENDING", threading.Event())
    run_tests.ENDING.set()
    assert not run_tests.run_scenario("default")
    assert not (tmp_path / "calls").exists()
    # A command that was about to start does not start, either.
    assert run_tests.stream([str(tmp_path / "molecule"), "test"], tmp_path / "log") == -signal.SIGTERM


def test_every_scenario_runs_and_slow_ones_run_only_if_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    scenarios = {path.parent.name for path in run_tests.ROOT.glob("molecule/*/molecule.yml")}
    assert {*run_tests.SCENARIOS, *run_tests.SLOW_SCENARIOS} == scenarios
    monkeypatch.setattr(run_tests, "run_scenario", lambda scenario: scenario == "cuda")
    assert run_tests.main(["cuda"]) == 0
    assert run_tests.STAGES["molecule"]() == Count(0, len(run_tests.SCENARIOS))


def test_lint_shows_the_output_of_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    command = [sys.executable, "-c", "print('line 3 is bad'); raise SystemExit(1)"]
    assert not run_tests.run_check("picky", command)
    assert "line 3 is bad" in capsys.readouterr().out


def test_lint_counts_the_lines_of_each_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    files = {"trainer/__init__.py": 1, "trainer/model/models/cnn.py": 4, "tests/trainer/model/test_cnn.py": 7}
    for name, lines in {**files, "docs/conf.py": 9}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass\n" * lines)
    assert run_tests.lines_by_room(["tests"]) == "trainer/model 7; 7"
    assert run_tests.lines_by_room(run_tests.PRODUCT) == "trainer 1, trainer/model 4; 5"


def test_lint_fails_above_the_bound_of_things_to_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tests.check_things_to_know()
    found = things_to_know.known_names(ROOT)
    assert {"files", "trainer_tasks"} < found["modules that Ansible ships"]
    assert {"chief", "lead"} < found["words of the glossary"]
    assert all(found[kind] for kind in things_to_know.MOST)
    monkeypatch.setitem(things_to_know.MOST, "roles", len(found["roles"]) - 1)
    assert not run_tests.check_things_to_know()
    said = capsys.readouterr().out
    assert f"FAILED; {len(found['roles'])} roles; at most {len(found['roles']) - 1} are allowed" in said


def test_the_locks_contain_hashes_and_no_addresses() -> None:
    for lock in (run_tests.ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        pins = re.findall(r"^[a-z0-9-]+==", text, flags=re.MULTILINE)
        assert len(pins) > 5
        assert len(re.findall(r"^\S.* \\\n    --hash=sha256:", text, flags=re.MULTILINE)) == len(pins)
        assert "://" not in text


def test_setup_names_the_required_python() -> None:
    done = subprocess.run(
        [run_tests.ROOT / "tools" / "bootstrap.sh", "controller"],
        env={"PATH": "/usr/bin:/bin", "PSFLEET_PYTHON": "/usr/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "needs Python 3.11 or 3.12; found /usr/bin/false" in done.stderr


def test_the_matrix_tries_each_ansible_core_that_the_preflight_accepts() -> None:
    preflight = (ROOT / "playbooks" / "preflight_inventory.yml").read_text()
    bounds = re.search(r'ansible-core: {oldest: "2\.(\d+)", first_unsupported: "2\.(\d+)"}', preflight)
    assert bounds
    tried = [int(version.split(".")[1]) for version in matrix.VERSIONS]
    assert tried == [*range(int(bounds[1]), int(bounds[2]))]

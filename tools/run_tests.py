#!/usr/bin/env python3
"""Runs the tests in stages side by side, all of them even if one fails, and counts what passed.

usage: tools/run_tests.py [lint] [unit] [molecule] [cuda] [tensorflows]

It counts each check of lint, each test of pytest and each Molecule scenario. `molecule` leaves out the slow
scenarios; each slow scenario is a stage of its own name, which `make test` does not run, and so is
`tensorflows`: the tests of programs with older TensorFlows. The last line is `N passed, N failed`; the exit
status is 0 only if nothing failed.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's sys.path begins with its own folder

from tools import tensorflows  # noqa: E402
from tools.things_to_know import excess, known_names  # noqa: E402

BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / ".state" / "logs"
# The first scenario starts with bare hosts. The others start with what the first scenario installed and kept,
# now or in an earlier run (molecule/shared/create.yml).
SCENARIOS = ("mixed", "default", "inventories")
KEPT = ("side_effect] Executed: Successful", "What other scenarios start with is kept already.")
# These scenarios train more programs, attack, carry gigabytes, or need the disk of 24 hosts.
SLOW_SCENARIOS = ("upkeep", "replication", "kinds", "cuda", "security", "scale")
# Parts of pytest run side by side, because their tests often wait for tasks and deadlines. Parts that wait
# longest come first. One part runs beside the scenarios, and one more for each scenario that has ended: three
# scenarios have work for two cores, and with more work beside them everything takes more of the processor.
# "unit" has no test with TensorFlow: in a process that has loaded TensorFlow, the system's libzstd can no
# longer read archives. The engine's tests have a process of their own: each server of TensorFlow leaves a
# hundred threads in it.
BESIDE_SCENARIOS = 1
UNIT = {
    "unit of tasks": ["tests/trainer/task"],
    "unit of engine": ["tests/trainer/engine"],
    "unit": [
        "tests",
        "--ignore=tests/trainer",
        "--ignore=tests/benchmarks",
        "--ignore=tests/psfleet/evidence",
    ],
    "unit of verdicts": ["tests/psfleet/evidence"],
    "unit of trainer": [
        "tests/trainer",
        "--ignore=tests/trainer/engine",
        "--ignore=tests/trainer/task",
        "tests/benchmarks",
    ],
}
LINES_SHOWN = 150
# The niceness of lint and pytest: the playbooks of a scenario wait for each other, so Molecule goes first.
# With 5 Linux gives lint and pytest a third of the time that it gives Molecule.
NICENESS = 5
PRODUCT = ("trainer", "psfleet", "plugins", "roles", "examples", "tools", "benchmarks")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# The line by which Molecule reports the end of an action. Molecule exits with 0 even if a playbook is
# missing.
ACTION_ENDED = re.compile(r"\[\S+ > (\w+)\] Executed: (\w+).*")
MISSING_PLAYBOOK = "Missing playbook"
# pytest's last line, and the progress at the end of its other lines.
COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")
PERCENT = re.compile(r"\[ *(\d+%)\]$")
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
# How many parts of pytest may begin now.
PARTS = threading.Semaphore(BESIDE_SCENARIOS)
# The name of a log -> the CPU seconds of the process that wrote it, without those of container hosts.
SPENT: dict[str, float] = {}
# The running processes; an event that says that all of them are to end.
STREAMS: set[subprocess.Popen[str]] = set()
ENDING = threading.Event()


class Count(NamedTuple):
    """How many checks of a stage passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def say(text: str) -> None:
    """Print one line without buffering, also into a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def lint_commands() -> dict[str, list[str]]:
    """Return {name of a check of lint: its command line}; they run in the project's root."""
    # Each listed playbook is run with --syntax-check; imported playbooks are found and linted anyway.
    imported = (":(exclude,glob)molecule/*/behaviours/*", ":!playbooks")
    plays = files_of("*.yml", "*.j2", ":!tests", *imported) + files_of("playbooks/practice_*.yml")
    return {
        "ansible-lint": [f"{BIN}/python", "tools/ansible_lint.py", "--offline", "--strict", *plays],
        "ansible-test": [f"{BIN}/python", "tools/sanity.py"],
        "ruff check": [f"{BIN}/ruff", "check", "."],
        "ruff format": [f"{BIN}/ruff", "format", "--check", "."],
        "mypy": [f"{BIN}/mypy"],
        "rooms": [f"{BIN}/lint-imports", "--no-cache"],
        "yamllint": [f"{BIN}/yamllint", "--strict", "."],
        "shellcheck": ["/usr/bin/env", "shellcheck", *files_of("*.sh", ".ci/run")],
    }


def files_of(*patterns: str) -> list[str]:
    """Return the existing files that git has or would add, and that match one of git's patterns.

    They are relative to the project's root. * also matches across folders.
    """
    command = ["/usr/bin/env", "git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def run_lint() -> Count:
    """Run all checks of lint, two at a time; return how many passed and failed.

    The output of failed checks is printed.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda check: run_check(*check), lint_commands().items()))
        results.append(check_things_to_know())
    return Count(passed=results.count(True), failed=results.count(False))


def run_check(name: str, command: list[str]) -> bool:
    """Run one check of lint; print that it passed, or the end of its output; return whether it passed."""
    log, begin = LOGS / f"lint {name}.log", time.monotonic()
    passed = stream(command, log, niceness=NICENESS) == 0
    report_end(log, begin, None if passed else log.read_text())
    return passed


def check_things_to_know() -> bool:
    """Print the numbers of things to know, and of lines by room; return whether all bounds are kept."""
    say(f"   lines of tests: {lines_by_room(['tests'])}")
    say(f"   lines of product Python: {lines_by_room(PRODUCT)}")
    found = known_names(ROOT)
    say(f"   things to know: {', '.join(f'{len(names)} {kind}' for kind, names in found.items())}")
    problems = excess(found)
    for problem in problems:
        say(f"   things to know: FAILED; {problem}")
    return not problems


def lines_by_room(folders: Sequence[str]) -> str:
    """Return the number of lines of Python in each room of these folders, then their sum, as text.

    Example: "psfleet/carry 2,100, psfleet/run 1,900; 4,000"
    """
    rooms: Counter[str] = Counter()
    for name in files_of(*(f"{folder}/*.py" for folder in folders)):
        room = Path(name.removeprefix("tests/")).parent.parts[:2]
        rooms["/".join(room) or "tests"] += len((ROOT / name).read_bytes().splitlines())
    counts = ", ".join(f"{room} {lines:,}" for room, lines in sorted(rooms.items()))
    return f"{counts}; {rooms.total():,}"


def run_unit() -> Count:
    """Run all parts of pytest; return the counts of their tests. Each real run is trained once."""
    with TemporaryDirectory() as runs, ThreadPoolExecutor() as pool:
        run_part = partial(run_pytest, variables={"PSFLEET_REAL_RUNS": runs})
        return Count(*map(sum, zip(*pool.map(run_part, UNIT, UNIT.values()), strict=True)))


def run_tensorflows() -> Count:
    """Run the tests of programs with each of several TensorFlows; return the counts of all tests."""
    results = [
        run_pytest(f"tensorflow {version}", tensorflows.TESTS, python=tensorflows.python_with(version))
        for version in tensorflows.versions()
    ]
    return Count(*map(sum, zip(*results, strict=True)))


def run_pytest(
    name: str,
    arguments: Sequence[str],
    variables: Mapping[str, str] = NO_VARIABLES,
    *,
    python: Path = BIN / "python",
) -> Count:
    """Run pytest with these arguments; return how many tests passed, failed and were skipped.

    `name` is the log's. Wait until this part may begin. If a test fails, print the end of the output.
    """
    log = LOGS / f"{name}.log"
    with PARTS:
        begin = time.monotonic()
        command = [str(python), "-m", "pytest", *arguments]
        returncode = stream(command, log, PERCENT, variables, niceness=NICENESS)
    count = count_tests(log.read_text(), returncode)
    report_end(log, begin, f"{log.read_text()}\nexit code {returncode}" if count.failed else None)
    return count


def count_tests(output: str, returncode: int) -> Count:
    """Return the counts in the last line of pytest's output; errors count as failures.

    If none failed and the return code is not 0, there is one failure.
    """
    line = output.rstrip().rpartition("\n")[2]
    counts = Counter({kind: int(number) for number, kind in COUNTED.findall(line)})
    failed = counts["failed"] + counts["error"]
    return Count(counts["passed"], failed or int(returncode != 0), counts["skipped"])


def run_scenarios(scenarios: Sequence[str]) -> Count:
    """Run Molecule scenarios; return how many passed and failed.

    The first one runs alone until it has kept its packages for the others; then the others run side by side.
    """
    log = LOGS / f"molecule {scenarios[0]}.log"
    log.unlink(missing_ok=True)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(run_scenario, scenarios[0])
        while not first.done() and not (log.exists() and any(line in log.read_text() for line in KEPT)):
            time.sleep(0.5)
        results = [*pool.map(run_scenario, scenarios[1:]), first.result()]
    return Count(passed=results.count(True), failed=results.count(False))


def run_scenario(scenario: str) -> bool:
    """Run `molecule test` of a scenario; return whether all actions were successful.

    After a failure, also remove its hosts. Return False at once if all processes are to end.
    """
    if ENDING.is_set():
        return False
    log, begin = LOGS / f"molecule {scenario}.log", time.monotonic()
    own = {"MOLECULE_EPHEMERAL_DIRECTORY": str(ROOT / ".state" / "ephemeral" / scenario)}
    returncode = stream([f"{BIN}/molecule", "test", "-s", scenario], log, ACTION_ENDED, variables=own)
    passed = returncode == 0 and MISSING_PLAYBOOK not in log.read_text()
    if not passed:
        destroyed = log.with_suffix(".destroy.log")
        if stream([f"{BIN}/molecule", "destroy", "-s", scenario], destroyed, variables=own):
            say(f"   hosts of {scenario} may be left; see {destroyed}")
    PARTS.release()
    report_end(log, begin, None if passed else up_to_failure(log.read_text()))
    return passed


def up_to_failure(text: str) -> str:
    """Return Molecule's output up to its first failed action; after that it only cleans up.

    Return all of it if no action failed.
    """
    ends = (found.end() for found in ACTION_ENDED.finditer(text) if found[2] != "Successful")
    return text[: next(ends, None)]


def stream(
    command: list[str],
    log: Path,
    shown: re.Pattern[str] | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    *,
    niceness: int = 0,
) -> int:
    """Run a command and write its output to the file `log`; return its exit status.

    For each match of `shown` in the output, print a line with its groups. `variables` are more environment
    variables. The command has a session of its own, so that it can be ended together with all processes that
    it started.
    """
    begin = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        if "destroy" not in command:
            STREAMS.add(process)
            if ENDING.is_set():  # perhaps end_streams ran before the process was in STREAMS
                end_streams()
        if niceness:
            set_niceness(process.pid, niceness)
        try:
            for coloured in process.stdout or ():
                line = COLOUR.sub("", coloured)
                file.write(line)
                file.flush()
                if shown and (found := shown.search(line)):
                    event = ": ".join(found.groups()).lower()
                    say(f"   {log.stem} {event} (at {time.monotonic() - begin:.0f} s)")
            _, status, usage = os.wait4(process.pid, 0)
            SPENT[log.stem] = usage.ru_utime + usage.ru_stime
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode
        finally:
            STREAMS.discard(process)


def set_niceness(session: int, niceness: int) -> None:
    """Set the niceness of all processes of a session, as far as this system permits it.

    If Linux groups processes by session (autogroups), it weighs whole sessions against each other; then the
    niceness of a process counts only within its own session.
    """
    with suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(f"{niceness}\n")
    with suppress(OSError):
        os.setpriority(os.PRIO_PGRP, session, niceness)


def report_end(log: Path, begin: float, failure: str | None) -> None:
    """Print the name of `log`, the seconds since `begin` (monotonic), the CPU seconds, and whether it passed.

    `failure` is None if it passed, else the output, of which the end is printed.
    """
    seconds = f"({time.monotonic() - begin:.0f} s, {SPENT.get(log.stem, 0.0):.0f} s of the CPU)"
    if failure is not None:
        last_lines = "\n".join(f"      {line}" for line in failure.splitlines()[-LINES_SHOWN:])
        say(f"   {log.stem}: FAILED {seconds}; all of it is in {log.relative_to(ROOT)}\n{last_lines}")
    else:
        say(f"   {log.stem}: passed {seconds}")


def end_streams() -> None:
    """End all running processes, and each process that starts from now on, except `molecule destroy`.

    So the hosts of scenarios are removed, as after a failure.
    """
    ENDING.set()
    for process in list(STREAMS):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def environment() -> dict[str, str]:
    """Return the environment variables of every command: those of this process, and some changes.

    .venv/bin comes first in PATH, and output is plain and wide.
    """
    return os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "COLUMNS": "160",
        "MOLECULE_COMMAND_BORDERS": "false",
        # Otherwise Molecule looks for scenarios in extensions/, and says so with every command.
        "MOLECULE_GLOB": "molecule/*/molecule.yml",
        "NO_COLOR": "1",
    }


STAGES: dict[str, Callable[[], Count]] = {
    "lint": run_lint,
    "unit": run_unit,
    "molecule": partial(run_scenarios, SCENARIOS),
    **{name: partial(run_scenarios, [name]) for name in SLOW_SCENARIOS},
    "tensorflows": run_tensorflows,
}


def main(names: list[str]) -> int:
    """Run the named stages side by side; return 0 if nothing failed and something passed, else 1.

    Return 2, and run nothing, for an unknown stage or without names.
    """
    unknown = [name for name in names if name not in STAGES]
    if unknown or not names:
        say(f"stages are {', '.join(STAGES)}; not among them: {', '.join(unknown) or 'none was named'}")
        return 2
    if "molecule" not in names:
        PARTS.release(len(UNIT))
    with ThreadPoolExecutor() as pool:
        try:
            results = list(pool.map(run_stage, names))
        except BaseException:
            end_streams()
            raise
    counts, summary = zip(*results, strict=True)
    passed, failed = sum(count.passed for count in counts), sum(count.failed for count in counts)
    say("\n".join(["", *summary, f"{passed} passed, {failed} failed"]))
    return 0 if failed == 0 and passed > 0 else 1


def run_stage(name: str) -> tuple[Count, str]:
    """Run the stage with this name; return (its counts, a line for people with the counts and seconds)."""
    begin = time.monotonic()
    count = STAGES[name]()
    outcome = f"== {name}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped"
    return count, f"{outcome} in {time.monotonic() - begin:.0f} s"


def end_on_signal(number: int, _frame: object) -> None:
    """Handle a signal: exit by an exception, with 128 + its number, so that started processes are ended."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_on_signal)
    signal.signal(signal.SIGHUP, end_on_signal)
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Run the tests in stages, all of them even when one fails, and count what passed.

usage: tools/run_tests.py [lint] [unit] [molecule] [cuda]

What is counted: each check of lint, each test of pytest, each Molecule scenario. `molecule` leaves out the
slow scenarios; each of those is a stage of its own name, which `make test` does not run.
The last line is `N passed, N failed`; the exit status is 0 only when nothing failed.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / ".state" / "logs"
# They carry gigabytes, and test what changes with a release of TensorFlow or CUDA.
SLOW_SCENARIOS = ("cuda",)
# Of a scenario whose hosts deploy.yml finds as it finds those of a user.
BARE_HOSTS = "scenario_hosts_are_bare: true"
LINES_SHOWN = 60
# Every line has a price. Whoever takes lines out lowers this.
PRODUCT, MOST_LINES = ("trainer", "psfleet", "plugins", "roles", "examples", "tools"), 25_161
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What Molecule prints when an action has ended. One whose playbook is missing has ended well in its eyes,
# so that is looked for here.
ACTION_ENDED = re.compile(r"\[\S+ > (\w+)\] Executed: (\w+)")
MISSING_PLAYBOOK = "Missing playbook"
# The `molecule test` that run, and whether they were told to end.
STREAMS: set[subprocess.Popen[str]] = set()
ENDING = threading.Event()


class Count(NamedTuple):
    """How many checks of a stage passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0


def say(text: str) -> None:
    """Print one line at once, also where the output is a file."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def lint_commands() -> dict[str, list[str]]:
    """The checks of lint by name, each with its command line."""
    scripts = files_of("*.sh", ".ci/run")
    return {
        "ruff check": [f"{BIN}/ruff", "check", "."],
        "ruff format": [f"{BIN}/ruff", "format", "--check", "."],
        "mypy": [f"{BIN}/mypy"],
        "rooms": [f"{BIN}/lint-imports", "--no-cache"],
        "yamllint": [f"{BIN}/yamllint", "--strict", "."],
        "ansible-lint": [f"{BIN}/ansible-lint", "--offline", "--strict"],
        "shellcheck": ["/usr/bin/env", "shellcheck", *scripts],
    }


def files_of(*patterns: str) -> list[str]:
    """The files that git has, or would take, by patterns in which * also stands for folders."""
    command = ["/usr/bin/env", "git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def run_lint() -> Count:
    """Run all checks of lint, two at a time; show the output of those that fail."""
    commands = lint_commands()
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(run_check, commands.items()))
    results.append(within_budget())
    return Count(passed=results.count(True), failed=results.count(False))


def run_check(named_command: tuple[str, list[str]]) -> bool:
    """Whether one check of lint passes; says so in a line, and what it said when it does not."""
    name, command = named_command
    begin = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    seconds = time.monotonic() - begin
    if done.returncode == 0:
        say(f"   {name}: passed ({seconds:.0f} s)")
        return True
    say(f"   {name}: FAILED ({seconds:.0f} s)\n{last_lines(done.stdout)}")
    return False


def within_budget() -> bool:
    """Whether the product's Python keeps to its budget; says how many lines each room has, of tests, too."""
    tests, _ = lines_by_room(["tests"])
    product, lines = lines_by_room(PRODUCT)
    say(f"   lines of tests: {tests}")
    say(f"   lines of product Python: {product} of at most {MOST_LINES:,}")
    if lines > MOST_LINES:
        say(f"   lines: FAILED; take out {lines - MOST_LINES:,}, or say why MOST_LINES has to be more")
    return lines <= MOST_LINES


def lines_by_room(folders: Sequence[str]) -> tuple[str, int]:
    """The lines of Python in each room of these folders and their sum, in words; and the sum."""
    rooms: Counter[str] = Counter()
    for name in files_of(*(f"{folder}/*.py" for folder in folders)):
        room = Path(name.removeprefix("tests/")).parent.parts[:2]
        rooms["/".join(room) or "tests"] += len((ROOT / name).read_bytes().splitlines())
    told = ", ".join(f"{room} {lines:,}" for room, lines in sorted(rooms.items()))
    return f"{told}; {rooms.total():,}", rooms.total()


def run_unit() -> Count:
    """Run pytest and count its tests."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        done = subprocess.run(
            [f"{BIN}/python", "-m", "pytest", f"--junit-xml={report}"],
            cwd=ROOT,
            env=environment(),
            check=False,
        )
        return count_tests(report, done.returncode)


def count_tests(report: Path, returncode: int) -> Count:
    """Read pytest's JUnit report; a run that broke before or beside its tests counts as one failure."""
    count = Count()
    if report.exists():
        suite = next(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - written by our own pytest
        total, failures, errors, skipped = (
            int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
        )
        count = Count(total - failures - errors - skipped, failures + errors, skipped)
    if returncode != 0 and count.failed == 0:
        return count._replace(failed=1)
    return count


def quick_scenarios() -> list[str]:
    """All Molecule scenarios but the slow ones: those with bare hosts first, then those that say most.

    What was installed on a bare host the others begin with. Those that say most take longest, and a long one
    that begins last leaves the other core idle at the end.
    """

    def rank(folder: Path) -> tuple[bool, int]:
        files = list(folder.rglob("*.yml"))
        bare = any(BARE_HOSTS in path.read_text() for path in files)
        return bare, sum(path.stat().st_size for path in files)

    folders = sorted(path.parent for path in ROOT.glob("molecule/*/molecule.yml"))
    return [
        folder.name for folder in sorted(folders, key=rank, reverse=True) if folder.name not in SLOW_SCENARIOS
    ]


def run_molecule() -> Count:
    """Run each Molecule scenario that is not slow."""
    return run_scenarios(quick_scenarios())


def run_scenarios(scenarios: Sequence[str]) -> Count:
    """Run Molecule scenarios, two at a time; none leaves hosts behind, however it ends."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            results = list(pool.map(run_scenario, scenarios))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            end_streams()
            raise
    return Count(passed=results.count(True), failed=results.count(False))


def run_scenario(scenario: str) -> bool:
    """Whether `molecule test` passes for one scenario and skipped none of its actions."""
    log = LOGS / f"molecule-{scenario}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    passed = False
    try:
        returncode = stream([f"{BIN}/molecule", "test", "-s", scenario], scenario, log)
        passed = returncode == 0 and MISSING_PLAYBOOK not in log.read_text()
    finally:
        if not passed:
            destroyed = stream(
                [f"{BIN}/molecule", "destroy", "-s", scenario], scenario, log.with_suffix(".destroy.log")
            )
            if destroyed != 0:
                say(f"   hosts of {scenario} may be left; see {log.with_suffix('.destroy.log')}")
    seconds = time.monotonic() - begin
    if passed:
        say(f"   molecule {scenario}: passed ({seconds:.0f} s)")
    else:
        say(f"   molecule {scenario}: FAILED ({seconds:.0f} s); all of it is in {log.relative_to(ROOT)}")
        say(last_lines(up_to_failure(log.read_text())))
    return passed


def up_to_failure(text: str) -> str:
    """Molecule's output up to the first action that failed or was missing: after it, it only cleans up."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if (ended := ACTION_ENDED.search(line)) and ended[2] != "Successful":
            return "\n".join(lines[: number + 1])
    return text


def stream(command: list[str], scenario: str, log: Path) -> int:
    """Run a Molecule command with its output in a log; one line to the terminal as each action ends.

    The command has a session of its own, so that it can be ended with all that it started.
    """
    begin = time.monotonic()
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment()
            | {"MOLECULE_EPHEMERAL_DIRECTORY": str(ROOT / ".state" / "ephemeral" / scenario)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        if "test" in command:
            STREAMS.add(process)
            if ENDING.is_set():  # since before it was there to be ended
                end_streams()
        try:
            for coloured in process.stdout or ():
                line = COLOUR.sub("", coloured)
                file.write(line)
                file.flush()
                if ended := ACTION_ENDED.search(line):
                    say(f"   {scenario} {ended[1]}: {ended[2].lower()} (at {time.monotonic() - begin:.0f} s)")
            return process.wait()
        finally:
            STREAMS.discard(process)


def end_streams() -> None:
    """End the scenarios that run, and those that are about to; they are then destroyed as those that fail."""
    ENDING.set()
    for process in list(STREAMS):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


def environment() -> dict[str, str]:
    """The environment of every command: the tools of .venv first, plain output, wide lines."""
    return os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "COLUMNS": "160",
        "MOLECULE_COMMAND_BORDERS": "false",
        # It would have them in extensions/, and says so with every command.
        "MOLECULE_GLOB": "molecule/*/molecule.yml",
        "NO_COLOR": "1",
    }


def last_lines(text: str) -> str:
    """The end of an output, indented."""
    return "\n".join(f"      {line}" for line in text.splitlines()[-LINES_SHOWN:])


STAGES: dict[str, Callable[[], Count]] = {
    "lint": run_lint,
    "unit": run_unit,
    "molecule": run_molecule,
    **{name: partial(run_scenarios, [name]) for name in SLOW_SCENARIOS},
}


def main(names: list[str]) -> int:
    """Run the named stages; 0 when nothing failed and something passed."""
    unknown = [name for name in names if name not in STAGES]
    if unknown or not names:
        say(f"stages are {', '.join(STAGES)}; not among them: {', '.join(unknown) or 'none was named'}")
        return 2
    counts, summary = [], []
    for name in names:
        say(f"== {name}")
        begin = time.monotonic()
        count = STAGES[name]()
        counts.append(count)
        summary.append(
            f"== {name}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped "
            f"in {time.monotonic() - begin:.0f} s"
        )
    passed, failed = sum(count.passed for count in counts), sum(count.failed for count in counts)
    say("\n".join(["", *summary, f"{passed} passed, {failed} failed"]))
    return 0 if failed == 0 and passed > 0 else 1


def end_on_signal(number: int, _frame: object) -> None:
    """Leave by an exception, so that what was started is ended and destroyed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_on_signal)
    signal.signal(signal.SIGHUP, end_on_signal)
    sys.exit(main(sys.argv[1:]))

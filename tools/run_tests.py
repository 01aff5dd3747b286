#!/usr/bin/env python3
"""Run the tests in stages side by side, all of them even when one fails, and count what passed.

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
sys.path.insert(0, str(ROOT))  # a script begins with its own folder there

from tools.things_to_know import counted, excess  # noqa: E402

BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / ".state" / "logs"
# The one with bare hosts, and the others, which begin with what it has installed and kept.
SCENARIOS = ("mixed", "default", "replication", "inventories")
KEPT = "side_effect] Executed: Successful"
# They carry gigabytes, and test what changes with a release of TensorFlow or CUDA.
SLOW_SCENARIOS = ("cuda", "security", "scale")
# The parts of pytest: in each tests wait for one another, and much of their time for tasks and deadlines.
_TASKS = ("tests/trainer", "tests/benchmarks")
UNIT = {"unit": ["tests", *(f"--ignore={folder}" for folder in _TASKS)], "unit of tasks": [*_TASKS]}
LINES_SHOWN = 150
PRODUCT = ("trainer", "psfleet", "plugins", "roles", "examples", "tools", "benchmarks")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# The line by which Molecule says how an action has ended. It exits with 0 also where a playbook is missing.
ACTION_ENDED = re.compile(r"\[\S+ > (\w+)\] Executed: (\w+).*")
MISSING_PLAYBOOK = "Missing playbook"
# What pytest says in the end, and how far it is at the end of each of its lines.
COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")
PERCENT = re.compile(r"\[ *(\d+%)\]$")
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
# What runs and may be ended, and whether all was told to end.
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
    # Each that is named is played with --syntax-check; what another imports is found and linted anyway.
    imported = (":(exclude,glob)molecule/*/behaviours/*", ":!playbooks")
    plays = files_of("*.yml", "*.j2", ":!tests", *imported) + files_of("playbooks/practice_*.yml")
    return {
        "ansible-lint": [f"{BIN}/python", "tools/ansible_lint.py", "--offline", "--strict", *plays],
        "ruff check": [f"{BIN}/ruff", "check", "."],
        "ruff format": [f"{BIN}/ruff", "format", "--check", "."],
        "mypy": [f"{BIN}/mypy"],
        "rooms": [f"{BIN}/lint-imports", "--no-cache"],
        "yamllint": [f"{BIN}/yamllint", "--strict", "."],
        "shellcheck": ["/usr/bin/env", "shellcheck", *files_of("*.sh", ".ci/run")],
    }


def files_of(*patterns: str) -> list[str]:
    """The files that git has, or would take, by patterns in which * also stands for folders."""
    command = ["/usr/bin/env", "git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def run_lint() -> Count:
    """Run all checks of lint, two at a time; show the output of those that fail."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        results = [*pool.map(lambda check: run_check(*check), lint_commands().items()), few_to_know()]
    return Count(passed=results.count(True), failed=results.count(False))


def run_check(name: str, command: list[str]) -> bool:
    """Whether one check of lint passes; says so in a line, and what it said when it does not."""
    log, begin = LOGS / f"lint {name}.log", time.monotonic()
    # Nobody waits for lint, while the first scenario keeps the others waiting.
    passed = stream(["/usr/bin/env", "nice", *command], log) == 0
    ended(log, begin, None if passed else log.read_text())
    return passed


def few_to_know() -> bool:
    """Whether the things to know stay below their bounds; prints how many there are, and lines by room."""
    say(f"   lines of tests: {lines_by_room(['tests'])}")
    say(f"   lines of product Python: {lines_by_room(PRODUCT)}")
    found = counted(ROOT)
    say(f"   things to know: {', '.join(f'{len(names)} {kind}' for kind, names in found.items())}")
    problems = excess(found)
    for problem in problems:
        say(f"   things to know: FAILED; {problem}")
    return not problems


def lines_by_room(folders: Sequence[str]) -> str:
    """The lines of Python in each room of these folders, and their sum, in words."""
    rooms: Counter[str] = Counter()
    for name in files_of(*(f"{folder}/*.py" for folder in folders)):
        room = Path(name.removeprefix("tests/")).parent.parts[:2]
        rooms["/".join(room) or "tests"] += len((ROOT / name).read_bytes().splitlines())
    told = ", ".join(f"{room} {lines:,}" for room, lines in sorted(rooms.items()))
    return f"{told}; {rooms.total():,}"


def run_unit() -> Count:
    """Run all parts of pytest side by side and count their tests; they train each real run once."""
    with TemporaryDirectory() as runs, ThreadPoolExecutor() as pool:
        run_part = partial(run_pytest, variables={"PSFLEET_REAL_RUNS": runs})
        return Count(*map(sum, zip(*pool.map(run_part, UNIT, UNIT.values()), strict=True)))


def run_pytest(name: str, arguments: Sequence[str], variables: Mapping[str, str] = NO_VARIABLES) -> Count:
    """Run one part of pytest and count its tests; show the end of what it says when one fails."""
    log, begin = LOGS / f"{name}.log", time.monotonic()
    returncode = stream([f"{BIN}/python", "-m", "pytest", *arguments], log, PERCENT, variables)
    count = count_tests(log.read_text(), returncode)
    ended(log, begin, f"{log.read_text()}\nexit code {returncode}" if count.failed else None)
    return count


def count_tests(said: str, returncode: int) -> Count:
    """Read pytest's last line; a run that broke before or beside its tests counts as one failure."""
    line = said.rstrip().rpartition("\n")[2]
    counts = Counter({kind: int(number) for number, kind in COUNTED.findall(line)})
    failed = counts["failed"] + counts["error"]
    return Count(counts["passed"], failed or int(returncode != 0), counts["skipped"])


def run_scenarios(scenarios: Sequence[str]) -> Count:
    """Run Molecule scenarios, side by side once the first has kept what it installed."""
    log = LOGS / f"molecule {scenarios[0]}.log"
    log.unlink(missing_ok=True)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(run_scenario, scenarios[0])
        while not first.done() and not (log.exists() and KEPT in log.read_text()):
            time.sleep(0.5)
        results = [*pool.map(run_scenario, scenarios[1:]), first.result()]
    return Count(passed=results.count(True), failed=results.count(False))


def run_scenario(scenario: str) -> bool:
    """Whether `molecule test` passes for a scenario and skipped no action; it leaves no hosts in any case."""
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
    ended(log, begin, None if passed else up_to_failure(log.read_text()))
    return passed


def up_to_failure(text: str) -> str:
    """Molecule's output up to the first action that failed or was missing: after it, it only cleans up."""
    ends = (found.end() for found in ACTION_ENDED.finditer(text) if found[2] != "Successful")
    return text[: next(ends, None)]


def stream(
    command: list[str],
    log: Path,
    told: re.Pattern[str] | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
) -> int:
    """Run a command with its output in a log; a line to the terminal for what matches `told`.

    The command has a session of its own, so that it can be ended with all that it started.
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
            if ENDING.is_set():  # since before it was there to be ended
                end_streams()
        try:
            for coloured in process.stdout or ():
                line = COLOUR.sub("", coloured)
                file.write(line)
                file.flush()
                if told and (found := told.search(line)):
                    said = ": ".join(found.groups()).lower()
                    say(f"   {log.stem} {said} (at {time.monotonic() - begin:.0f} s)")
            return process.wait()
        finally:
            STREAMS.discard(process)


def ended(log: Path, begin: float, failure: str | None) -> None:
    """Say that something ended, after how long, and the end of what it said where it failed."""
    seconds = f"({time.monotonic() - begin:.0f} s)"
    if failure is not None:
        shown = "\n".join(f"      {line}" for line in failure.splitlines()[-LINES_SHOWN:])
        say(f"   {log.stem}: FAILED {seconds}; all of it is in {log.relative_to(ROOT)}\n{shown}")
    else:
        say(f"   {log.stem}: passed {seconds}")


def end_streams() -> None:
    """End what runs, and what is about to; scenarios are then destroyed as those that fail."""
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


STAGES: dict[str, Callable[[], Count]] = {
    "lint": run_lint,
    "unit": run_unit,
    "molecule": partial(run_scenarios, SCENARIOS),
    **{name: partial(run_scenarios, [name]) for name in SLOW_SCENARIOS},
}


def main(names: list[str]) -> int:
    """Run the named stages side by side; 0 when nothing failed and something passed."""
    unknown = [name for name in names if name not in STAGES]
    if unknown or not names:
        say(f"stages are {', '.join(STAGES)}; not among them: {', '.join(unknown) or 'none was named'}")
        return 2
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
    """What a stage counted, and that in words."""
    begin = time.monotonic()
    count = STAGES[name]()
    told = f"== {name}: {count.passed} passed, {count.failed} failed, {count.skipped} skipped"
    return count, f"{told} in {time.monotonic() - begin:.0f} s"


def end_on_signal(number: int, _frame: object) -> None:
    """Leave by an exception, so that what was started is ended and destroyed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end_on_signal)
    signal.signal(signal.SIGHUP, end_on_signal)
    sys.exit(main(sys.argv[1:]))

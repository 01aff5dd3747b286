#!/usr/bin/env python3
"""Breaks functions in many small ways, one at a time, and counts how many of these mutants tests notice.

usage: tools/mutants.py [ROOM | FILE]...    such as psfleet/carry or psfleet/evidence/sharing.py

The mutants of a room are tested by the room's own tests and by tests of plugins that import the room, except
tests that start Ansible, or Python without packages (marked `slow`). The mutants stay in `.state/mutants/`
while no file changes, so that an interrupted run continues there. `mutmut show MUTANT` in that folder shows a
mutant.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# mutmut signals processes by ids that another process may have by then. So it runs where it sees only its own
# processes.
APART = ("/usr/bin/env", "unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
ROOMS = (
    "psfleet/evidence",
    "psfleet/inventory",
    "psfleet/carry",
    "plugins/module_utils",
    "trainer/host",
    "trainer/contract",
)
# These tests start forty runs of TensorFlow.
LEFT_OUT = "tests/psfleet/evidence/adversaries"
NOTICED, UNNOTICED = {"killed", "timeout", "segfault"}, {"survived", "no tests", "suspicious"}


def main(named: list[str]) -> int:
    """Test the mutants of the rooms or files in `named` (default: all ROOMS); print how many tests notice.

    Return 0, 2 for a name that is neither, or the exit code of mutmut if it fails; how many are noticed does
    not count.
    """
    for name in named or ROOMS:
        room = next((room for room in ROOMS if Path(name).is_relative_to(room)), None)
        if room is None or not (ROOT / name).exists():
            sys.stderr.write(f"{name} is neither one of {', '.join(ROOMS)} nor a file in one of them\n")
            return 2
        copy = copy_for(name, room)
        done = mutmut(copy, "run", "--max-children", str(os.cpu_count()))
        if done.returncode:
            return done.returncode
        results = mutmut(copy, "results", "--all", "true", quiet=True).stdout.split("\n")
        counts = Counter(line.rpartition(": ")[2] for line in results if ": " in line)
        noticed, tried = (sum(counts[status] for status in kinds) for kinds in (NOTICED, NOTICED | UNNOTICED))
        statuses = ", ".join(f"{status} {count:,}" for status, count in sorted(counts.items()))
        sys.stdout.write(f"{name}: {noticed / max(tried, 1):.1%} of {tried:,} mutants noticed ({statuses})\n")
    return 0


def copy_for(name: str, room: str) -> Path:
    """Return a folder with a copy of git's files, in which mutmut breaks the room or file `name`.

    `room` is the room itself, or the room of the file. A copy from an earlier run is used again if no file
    has changed since.
    """
    listed = subprocess.run(
        ["/usr/bin/env", "git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [file for file in listed.stdout.splitlines() if (ROOT / file).exists()]
    digest = hashlib.sha256("".join(files).encode())
    for file in files:
        digest.update((ROOT / file).read_bytes() if (ROOT / file).is_file() else b"")
    copy = ROOT / ".state" / "mutants" / name.removesuffix(".py").replace("/", ".")
    mark = copy / "digest"
    if mark.exists() and mark.read_text() == digest.hexdigest():
        return copy
    shutil.rmtree(copy, ignore_errors=True)
    packages = ["psfleet", "trainer", "plugins"]
    for file in files:
        # mutmut itself copies these files into the folder where it breaks and tests them.
        broken = file.split("/")[0] in {*packages, "tests", "pyproject.toml"}
        place = copy / file if broken else copy / "mutants" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, place, follow_symlinks=False)
    of_plugins = [file for file in files if file.startswith("tests/plugins/") and file.endswith(".py")]
    shells = [file for file in of_plugins if f"from {room.replace('/', '.')}" in (ROOT / file).read_text()]
    settings = {
        "source_paths": packages,
        "only_mutate": [name if name.endswith(".py") else f"{name}/*"],
        "pytest_add_cli_args": ["-m", "not slow", f"--ignore={LEFT_OUT}"],
        "pytest_add_cli_args_test_selection": [f"tests/{room}", *shells],
        "use_git_change_detection": False,
    }
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    with (copy / "pyproject.toml").open("a") as project:
        project.write(f"\n[tool.mutmut]\n{lines}")
    (copy / "runs").mkdir()
    mark.write_text(digest.hexdigest())
    return copy


def mutmut(copy: Path, *arguments: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run mutmut with these arguments in a copy; return the ended process.

    With `quiet`, its output is captured; else it is printed. Runs of TensorFlow are trained once, and not for
    every mutant.
    """
    environment = os.environ | {"PSFLEET_REAL_RUNS": str(copy / "runs")}
    user = () if os.geteuid() == 0 else ("--map-current-user",)
    command = [*APART, *user, "--", sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, check=False, text=True, capture_output=quiet)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

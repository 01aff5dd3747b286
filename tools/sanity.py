#!/usr/bin/env python3
"""Runs Ansible's own tests of collections, `ansible-test sanity`, on the collection as it is built.

usage: tools/sanity.py [OPTION OF ANSIBLE-TEST..]

tests/sanity/ignore-*.txt says which tests do not pass, and why. ruff and mypy check what pep8 and pylint
would. ansible-test's own environments are in the cache that clones share: to create them takes longer than
to run the tests.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PLACE = ROOT / ".state" / "sanity"
CACHE = Path(os.environ.get("PSFLEET_CACHE") or Path.home() / ".cache" / "psfleet") / "ansible-test"
SKIPPED = ("pep8", "pylint")
# ansible-test downloads a script that installs pip into its environments. Python itself can install pip, too.
BOOTSTRAP = "import ensurepip\n\nensurepip.bootstrap(upgrade=True)\n"


def main(options: list[str]) -> int:
    """Build the collection and run `ansible-test sanity` with these options; return its exit status."""
    shutil.rmtree(PLACE / "ansible_collections", ignore_errors=True)
    collection = PLACE / "ansible_collections" / "psfleet" / "cluster"
    collection.mkdir(parents=True)
    build: list[str | Path] = [BIN / "ansible-galaxy", "collection", "build", "--force"]
    subprocess.run([*build, "--output-path", PLACE, ROOT], check=True, stdout=subprocess.DEVNULL)
    (archive,) = PLACE.glob("psfleet-cluster-*.tar.gz")
    with tarfile.open(archive) as stream:
        stream.extractall(collection)  # noqa: S202 - it was built just now
    shutil.copytree(ROOT / "tests" / "sanity", collection / "tests" / "sanity")
    # ansible-test takes the list of a collection's files from git.
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["/usr/bin/env", "git", *command], cwd=collection, check=True)
    for version in ("24_2", "25_1"):
        script = CACHE / ".ansible" / "test" / "cache" / f"get_pip_{version}.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(BOOTSTRAP, encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    skipped = [option for name in SKIPPED for option in ("--skip-test", name)]
    command = [f"{BIN}/ansible-test", "sanity", "--python", python, *skipped, *options]
    environment = os.environ | {"HOME": str(CACHE), "PATH": f"{BIN}:{os.environ['PATH']}"}
    with (CACHE / "lock").open("w") as lock:  # one clone at a time creates environments
        fcntl.flock(lock, fcntl.LOCK_EX)
        return subprocess.run(command, cwd=collection, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env python3
"""Deploys and trains with each ansible-core that the preflight accepts.

The controller is a container of Debian 13, because ansible-core 2.20 and newer need Python 3.12. Its hosts
are three practice hosts, which each version finds as the version before has left them: without psfleet.

usage: tools/matrix.py [VERSION ..]

The last line is `N passed, N failed`; the exit status is 0 only when nothing failed.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import tomllib
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script's sys.path begins with its own folder

from tools.run_tests import say  # noqa: E402

STATE = ROOT / ".state" / "matrix"
BIN = ROOT / ".venv" / "bin"
INVENTORY = STATE / "inventory"
# The newest release of each minor version that playbooks/preflight_inventory.yml accepts.
VERSIONS = ("2.19.14", "2.20.10", "2.21.5")
# The practice host that has the controller's system, and the Python of that system.
SYSTEM, PYTHON = "node3", "3.13"
WARNS = r"\[WARNING\]|\[DEPRECATION|\[ERROR\]"
PODMAN = ["podman"] if os.geteuid() == 0 else ["sudo", "podman"]
PLAYBOOKS = sorted(path.name for path in ROOT.glob("*.yml") if path.name != "galaxy.yml")
HOSTS = {
    "practice_hosts_scenario": "matrix",
    "practice_hosts_directory": str(INVENTORY),
    "practice_hosts_nodes": [
        {"name": "node1", "groups": ["ps"]},
        {"name": "node2", "groups": ["worker"], "user": "ops", "sudo_password": True},
        {"name": "node3", "groups": ["worker"], "suite": "trixie"},
    ],
}
# Name -> (the words of a command, what its output must contain).
PLAYS = {
    "deploy": (["deploy.yml"], r"node1 .*failed=0"),
    "deploy again": (["deploy.yml"], r"node1 .*changed=0 .*failed=0"),
    "a check of a deployment": (
        ["deploy.yml", "--check", "--diff", "--limit", "node2"],
        r"node2 .*changed=0",
    ),
    "train": (["train.yml", "-e", "trainer_model=linear"], "PROVEN: 2 workers"),
    "status": (["status.yml"], "tasks on 3 hosts"),
    "doctor": (["doctor.yml"], "all well|3 hosts"),
    "a syntax check": (["--syntax-check", *PLAYBOOKS], "playbook: deploy.yml"),
    "reset": (["reset.yml"], r"node1 .*changed=[1-9]"),
}


def main(versions: Sequence[str]) -> int:
    """Run all PLAYS with each version of ansible-core; return 0 if all passed, else 1.

    It makes the practice hosts first, and removes them at the end. Without versions, return 1.
    """
    STATE.mkdir(parents=True, exist_ok=True)
    hosts = STATE / "hosts.yml"
    hosts.write_text(yaml.safe_dump(HOSTS))
    practice = [f"{BIN}/ansible-playbook", "-i", "localhost,", "-e", f"@{hosts}"]
    results: list[bool] = []
    try:
        subprocess.run([*practice, "playbooks/practice_up.yml"], cwd=ROOT, check=True)
        controller = container_command()
        for version in versions:
            packages = f"--env=PYTHONPATH={install_packages(version)}"
            results += run_plays(version, [*controller, packages, image_of(SYSTEM)])
    finally:
        subprocess.run([*practice, "playbooks/practice_down.yml"], cwd=ROOT, check=False)
    say(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if results and all(results) else 1


def run_plays(version: str, controller: Sequence[str]) -> Iterator[bool]:
    """Run each of PLAYS with this version, one after the other; yield for each whether it passed.

    `controller` is the beginning of a command that runs the rest in the controller's container.
    """
    for name, (words, expected) in PLAYS.items():
        play = ["python3", "-m", "ansible", "playbook", "-i", str(INVENTORY), *words]
        yield play_passes(f"{version} {name}", [*controller, *play], expected)


def play_passes(name: str, command: Sequence[str], expected: str) -> bool:
    """Run a command; return whether it exits with 0, and prints what is `expected`, and no warning.

    `expected` is a regular expression. Print the result; if it is False, also the command's output.
    """
    log, begin = STATE / f"{name}.log", time.monotonic()
    with log.open("w") as output:
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    printed = log.read_text()
    good = status == 0 and bool(re.search(expected, printed)) and not re.search(WARNS, printed)
    outcome = "passed" if good else f"FAILED, exit status {status}"
    say(f"{name}: {outcome} ({time.monotonic() - begin:.0f} s)")
    if not good:
        say(f"{printed}\nexpected {expected!r}, and no warning")
    return good


def install_packages(version: str) -> Path:
    """Install this version of ansible-core and what else the controller needs; return the folder.

    The other packages have their locked versions.
    """
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    pins = re.findall(r"^([\w.-]+==[\w.]+)( ; .*?)? \\$", locked, re.MULTILINE)
    constraints = STATE / "constraints.txt"
    constraints.write_text(
        "".join(f"{pin}{marker}\n" for pin, marker in pins if not pin.startswith("ansible-core"))
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [need for need in project["project"]["dependencies"] if not need.startswith("ansible")]
    folder = STATE / version
    command = [f"{BIN}/uv", "pip", "install", "--quiet", "--target", str(folder), "--python-version", PYTHON]
    command += [
        "--only-binary",
        ":all:",
        "--constraint",
        str(constraints),
        f"ansible-core=={version}",
        *wanted,
    ]
    subprocess.run(command, check=True)
    return folder


def container_command() -> list[str]:
    """Return the beginning of a command that runs another command in a container beside the practice hosts.

    The caller appends a variable with the packages' folder, the image, and the other command.
    """
    find = [str(ROOT / "roles" / "practice_hosts" / "files" / "find_runtime.sh"), ""]
    runtime = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()
    cache = Path(os.environ.get("PSFLEET_CACHE") or Path.home() / ".cache" / "psfleet")
    limits = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
    mounts = [f"--volume={path}:{path}" for path in (ROOT, cache)]
    variables = [f"--env=PSFLEET_CACHE={cache}", "--env=PYTHONDONTWRITEBYTECODE=1", "--env=HOME=/root"]
    begin = [*PODMAN, "run", "--rm", "--network=host", f"--workdir={ROOT}"]
    return [*begin, *([f"--runtime={runtime}"] if runtime else []), *limits, *mounts, *variables]


def image_of(host: str) -> str:
    """Return the name of the image from which the container of a practice host was made."""
    ours = [*PODMAN, "ps", "--format", "{{.Names}} {{.Image}}", "--filter", f"name=-matrix-{host}$"]
    listed = subprocess.run(ours, check=True, capture_output=True, text=True).stdout
    return listed.split()[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or VERSIONS))

"""`python -m benchmarks.deployment` measures deployments of practice hosts, by the number of hosts."""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pip
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.data import ROOT
from benchmarks.results import machine
from psfleet.report.drawing import DASHES, PALETTE, WIDTH, as_svg, style
from trainer.contract.json_files import write_json

SIZES = (2, 4, 8, 16)
# The actions on the hosts, in their order -> their titles.
ROWS: Mapping[str, str] = {
    "bare": "bare hosts, wheels cached",
    "again": "again, nothing to do",
    "release": "a new release of the trainer",
    "added": "one host added",
    "plain": "the plain playbook, bare hosts, wheels there",
    "plain_again": "the plain playbook again",
}
PRACTICE, SLOPE = "inventory/practice", ("again", "bare", "plain_again", "plain")
PLAIN = ROOT / "benchmarks" / "programs" / "plain_deploy.yml"
CACHE = Path(os.environ.get("PSFLEET_CACHE", "~/.cache/psfleet")).expanduser()
CONTROLLER = "controller_cpu_seconds"
Figures = dict[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure each number of hosts in --hosts once, and write the table after each; return 0.

    Raises CalledProcessError if a playbook fails.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deployment")
    parser.add_argument("--hosts", default=",".join(map(str, SIZES)), help="how many, such as 3,12")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks", help="folder of deployment.*")
    options = parser.parse_args(arguments)
    before, found = machine(), {}
    with project() as folder:
        # What is made only once, for all hosts, is made before the measurements.
        with hosts(folder, groups_of(2)):
            run_playbook(folder, "deploy.yml")
        write_plain_parts(folder)
        for number in map(int, options.hosts.split(",")):
            found[number] = measure(folder, number)
            write_json(options.output / "deployment.json", {"machine": before, "hosts": found})
            (options.output / "deployment.md").write_text(page(before, found), encoding="utf-8")
            (options.output / "deployment.svg").write_text(f"{picture(found)}\n", encoding="utf-8")
    sys.stdout.write(page(before, found))
    return 0


@contextmanager
def project() -> Iterator[Path]:
    """Yield a temporary copy of the project, with its own practice hosts; its files may be changed."""
    with TemporaryDirectory(prefix="psfleet-bench-") as directory:
        listed = ["/usr/bin/env", "git", "ls-files", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
        for name in done.stdout.splitlines():
            if (ROOT / name).exists():
                place = Path(directory, name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place, follow_symlinks=False)
        yield Path(directory)


@contextmanager
def hosts(folder: Path, groups: Sequence[Sequence[str]]) -> Iterator[None]:
    """Make practice hosts (`make_hosts`) for the block, and remove them at its end."""
    try:
        make_hosts(folder, groups)
        yield
    finally:
        run_playbook(folder, "playbooks/practice_down.yml", inventory="localhost,")


def groups_of(number: int) -> list[list[str]]:
    """Return the groups of each of `number` hosts: the first is a ps, all others are workers.

    Example: groups_of(3) -> [["ps"], ["worker"], ["worker"]]
    """
    return [["worker" if place else "ps"] for place in range(number)]


def make_hosts(folder: Path, groups: Sequence[Sequence[str]]) -> None:
    """Make the practice hosts node1, node2, ... that do not exist yet.

    `groups` has a list for each host: the groups in which the host is.
    """
    nodes = [{"name": f"node{number}", "groups": list(own)} for number, own in enumerate(groups, start=1)]
    variables = json.dumps({"practice_hosts_nodes": nodes})
    run_playbook(folder, "playbooks/practice_up.yml", "-e", variables, inventory="localhost,")


def measure(folder: Path, number: int) -> dict[str, Figures]:
    """Measure each of ROWS once with `number` bare hosts, in this order; return {row: its figures}.

    "added" has one host more. `folder` is the copy of the project.
    """
    found = {}
    with hosts(folder, groups_of(number)):
        found["bare"] = run_playbook(folder, "deploy.yml")
        found["again"] = run_playbook(folder, "deploy.yml")
        with (folder / "trainer" / "doctor.py").open("a", encoding="utf-8") as stream:
            stream.write(f"# {number} hosts\n")
        found["release"] = run_playbook(folder, "deploy.yml")
        make_hosts(folder, groups_of(number + 1))
        found["added"] = run_playbook(folder, "deploy.yml")
    with hosts(folder, groups_of(number)):
        archive = json.dumps({"plain_archive": str(folder / "plain.tar")})
        for row in ("plain", "plain_again"):
            found[row] = run_playbook(folder, str(PLAIN), "-e", archive, configuration="plain.cfg")
    for row, figures in found.items():
        sys.stdout.write(f"{number} hosts, {ROWS[row]}: {figures['seconds']:.1f} s\n")
        sys.stdout.flush()
    return found


def write_plain_parts(folder: Path) -> None:
    """Write plain.tar (the newest wheels in psfleet's cache, and pip) and an empty plain.cfg into `folder`.

    The plain playbook uses them.
    """
    (folder / "plain.cfg").touch()
    filled = max(CACHE.glob("wheels/*/environment-*.tar.zst"), key=lambda path: path.stat().st_mtime)
    shutil.copyfile(filled.with_name(f"wheels-{filled.parent.name}.tar"), folder / "plain.tar")
    with tarfile.open(folder / "plain.tar", "a") as stream:
        stream.add(Path(pip.__file__).parent, "pip")


def run_playbook(
    folder: Path,
    playbook: str,
    *options: str,
    inventory: str = PRACTICE,
    configuration: str = "ansible.cfg",
) -> Figures:
    """Run a playbook in a copy of the project; return its figures.

    These are `seconds`, `controller_cpu_seconds` (of ansible-playbook and its children), `cpu_seconds`
    (of the whole machine) and `megabytes` (sent to the hosts). Raises CalledProcessError, after printing
    the end of the output, if the playbook fails.
    """
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", inventory, *options, playbook]
    variables = {**os.environ, "ANSIBLE_CONFIG": configuration}
    own, began, busy, sent = cpu_of_children(), time.monotonic(), busy_seconds(), bytes_sent()
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    figures = {
        "seconds": time.monotonic() - began,
        "controller_cpu_seconds": cpu_of_children() - own,
        "cpu_seconds": busy_seconds() - busy,
        "megabytes": (bytes_sent() - sent) / 1e6,
    }
    if done.returncode:
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
        done.check_returncode()
    return figures


def cpu_of_children() -> float:
    """Return the CPU seconds of all ended child processes of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def busy_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have used since its start."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    worked = sum(map(int, (user, nice, system, *interrupts)))
    return worked / os.sysconf("SC_CLK_TCK")


def bytes_sent() -> int:
    """Return the bytes that this machine has sent into networks of containers, by their bridges."""
    counters = Path("/sys/class/net").glob("podman*/statistics/tx_bytes")
    return sum(int(counter.read_text(encoding="ascii")) for counter in counters)


def page(machine_facts: Mapping[str, object], found: Mapping[int, Mapping[str, Figures]]) -> str:
    """Return a Markdown page: a table of the figures, and the controller's CPU seconds for each further host.

    `found` is {number of hosts: {row: its figures}}; with one number, the second part is missing.
    """
    titles = [f"{number} hosts" for number in found]
    lines = [
        "# Results of make bench-deploy",
        "",
        ", ".join(f"{name} {value}" for name, value in machine_facts.items()),
        "",
        f"| seconds, in brackets CPU-s of the controller, of all, and MB sent | {' | '.join(titles)} |",
        f"| --- |{' ---: |' * len(titles)}",
    ]
    for row, words in ROWS.items():
        cells = [
            "{seconds:.1f} ({controller_cpu_seconds:.1f}, {cpu_seconds:.0f}, {megabytes:.0f})".format(
                **of_size[row]
            )
            for of_size in found.values()
        ]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    if len(found) > 1:
        least, most = min(found), max(found)
        of_least, of_most = found[least], found[most]
        slopes = [
            f"{ROWS[row]} {(of_most[row][CONTROLLER] - of_least[row][CONTROLLER]) / (most - least):.2f}"
            for row in SLOPE
        ]
        lines += ["", f"Controller's CPU-s for each host more: {', '.join(slopes)}."]
    return "\n".join([*lines, ""])


def picture(found: Mapping[int, Mapping[str, Figures]]) -> str:
    """Return an SVG, as text, of the seconds by the number of hosts, with a line for each row."""
    with style():
        figure = Figure(figsize=(WIDTH, 0.8 * WIDTH), layout="constrained")
        axes = figure.add_subplot()
        for place, (row, words) in enumerate(ROWS.items()):
            seconds = [of_size[row]["seconds"] for of_size in found.values()]
            dashes = DASHES[row.startswith("plain")]
            axes.plot(list(found), seconds, label=words, color=PALETTE[place], linestyle=dashes, marker="o")
        axes.set(xlabel="hosts", ylabel="seconds", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.15))
        return str(as_svg(figure, "deployment", "Seconds of each deployment by the number of hosts"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A cluster of practice hosts of this machine, and what can be done to it from outside."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from benchmarks.deployment import hosts, project

PRACTICE = "inventory/practice"
ANSIBLE = str(Path(sys.executable).with_name("ansible-playbook"))
# No wait is longer. A run takes less than a minute on a quiet machine.
DEADLINE_SECONDS = 900.0
RUNS = "/var/lib/psfleet/runs"


class FaultError(RuntimeError):
    """Something other than the run went wrong: a fault did not bite, or the cluster is not healthy."""


@contextmanager
def cluster(*groups: Sequence[str]) -> Iterator["Cluster"]:
    """Yield a deployed cluster with a practice host for each list of groups, and remove it at the end."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the hosts are removed then, too
    with project() as folder, hosts(folder, groups):
        made = Cluster(folder, places(groups))
        made.play("deploy.yml", check=True)
        yield made


@dataclass(frozen=True)
class Cluster:
    """A cluster that was deployed from a copy of the project in `folder`.

    `places` is task -> its host. Worker 0 is the chief.
    """

    folder: Path
    places: Mapping[str, str]

    def container(self, host: str) -> str:
        """Return the name of a host's container."""
        clone = sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]
        return f"psfleet-{clone}-demo-{host}"

    def podman(self, command: str, host: str) -> None:
        """Do something to a host's container, such as `restart`. Raises CalledProcessError if that fails."""
        subprocess.run(["podman", *command.split(), self.container(host)], check=True, capture_output=True)

    def remove_psfleet(self, host: str) -> None:
        """Remove everything of psfleet from a host that is off, as if another one had its name and key."""
        argv = ["podman", "mount", self.container(host)]
        root = Path(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip())
        try:
            found = [*(root / "etc").rglob("*psfleet*")]
            found += [root / directory / "psfleet" for directory in ("opt", "var/lib", "var/log")]
            for path in sorted(found, reverse=True):
                _remove(path)
        finally:
            subprocess.run(["podman", "unmount", self.container(host)], check=True, capture_output=True)

    def on_host(self, host: str, command: str, *, check: bool = True) -> str:
        """Return what a shell command prints on a host. Raises CalledProcessError if it fails."""
        argv = ["podman", "exec", self.container(host), "/bin/sh", "-c", command]
        return subprocess.run(argv, check=check, capture_output=True, text=True).stdout

    def restarts(self, task: str) -> int:
        """Return how often systemd has started a task again since its unit was started."""
        command = f"systemctl show --value --property=NRestarts {unit_of(task)}"
        return int(self.on_host(self.places[task], command, check=False).strip() or 0)

    def signal(self, task: str, signal: str) -> int:
        """Send a signal to the main process of a task; return its process id on its host."""
        host = self.places[task]
        pid = int(self.on_host(host, f"systemctl show --value --property=MainPID {unit_of(task)}"))
        if not pid:
            raise FaultError(f"{task} has no process to send {signal} to")
        self.on_host(host, f"kill -s {signal} {pid}")
        return pid

    def pid_of(self, task: str) -> int:
        """Return the process id that a task has on this machine. Raises FaultError if it does not run."""
        job, index = task[:-1], task[-1]
        argv = ["podman", "top", self.container(self.places[task]), "hpid", "args"]
        shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        found = [line for line in shown.splitlines() if f"--job_name={job} --task_index={index} " in line]
        if len(found) != 1:
            raise FaultError(f"{task} has {len(found)} processes")
        return int(found[0].split()[0])

    def init_of(self, host: str) -> int:
        """Return the process id that a host's first process has on this machine."""
        argv = ["podman", "inspect", "--format", "{{.State.Pid}}", self.container(host)]
        return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)

    def heal(self) -> None:
        """Bring up all hosts and end whatever runs on them, after a fault that went wrong."""
        for host in sorted(set(self.places.values())):
            # Until podman has noticed that a host went down, starting it does nothing.
            wait_for(partial(self._starts, host), f"the start of {host}")
            self.await_host(host)
        self.play("stop.yml", check=True)

    def _starts(self, host: str) -> bool:
        self.podman("start", host)
        return self.on_host(host, "echo up", check=False) == "up\n"

    def await_host(self, host: str) -> None:
        """Wait until a host has booted."""
        command = "systemctl is-system-running --wait"
        wait_for(lambda: self.on_host(host, command, check=False).strip() in {"running", "degraded"})

    def play(self, playbook: str, *options: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a playbook to its end. Raises CalledProcessError with `check` if it fails."""
        done = subprocess.run(
            self.command(*options, playbook),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if check and done.returncode:
            sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
            done.check_returncode()
        return done

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of playbooks, with their options."""
        return [ANSIBLE, "-i", PRACTICE, *arguments]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables of playbooks."""
        return {**os.environ, "ANSIBLE_CONFIG": "ansible.cfg", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "200"}

    def global_step(self, run_id: str) -> int:
        """Return the global step that the chief last wrote, -1 before it wrote one."""
        path = shlex.quote(f"{RUNS}/{run_id}/progress.json")
        try:
            content = json.loads(self.on_host(self.places["worker0"], f"cat {path}", check=False) or "{}")
        except ValueError:
            return -1
        step = content.get("global_step", -1)
        return step if isinstance(step, int) else -1

    def left_over(self) -> list[str]:
        """Return the tasks' processes that still live on any host."""
        command = "pgrep --uid psfleet --list-full --full trainer || true"
        printed = {host: self.on_host(host, command) for host in set(self.places.values())}
        return [f"{host}: {line}" for host, text in printed.items() for line in text.splitlines()]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def places(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return task -> its host; host i, named node<i + 1>, is in groups[i] ("ps", "worker")."""
    found: dict[str, str] = {}
    for number, jobs in enumerate(groups, start=1):
        for job in jobs:
            found[f"{job}{sum(task.startswith(job) for task in found)}"] = f"node{number}"
    return found


def unit_of(task: str) -> str:
    """Return the unit of a task such as "worker0"."""
    return f"psfleet-{task[:-1]}@{task[-1]}.service"


def wait_for(condition: Callable[[], bool], what: str = "it") -> None:
    """Wait until a condition holds. Raises FaultError after the deadline."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise FaultError(f"{what} did not happen within {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.1)

"""What is done to a run from outside. A fault does its harm and returns once the run can go on."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.cluster import RUNS, FaultError, wait_for
from tests.faults.watched import Watched

# Raises FaultError if it did not bite.
Fault = Callable[[Watched], None]
# A busy machine may see a save when it is nearly over.
_ATTEMPTS = 5


def killed(*tasks: str) -> Fault:
    """Kill tasks at once, and wait until systemd has started them again."""

    def fault(run: Watched) -> None:
        before = {task: run.cluster.restarts(task) for task in tasks}
        for task in tasks:
            run.cluster.signal(task, "KILL")
        for task in tasks:
            await_restart(run, task, before[task])

    return fault


def killed_in_save(task: str) -> Fault:
    """Kill a task while the chief writes a checkpoint, and wait until systemd has started it again."""

    def fault(run: Watched) -> None:
        for _ in range(_ATTEMPTS):
            before = run.cluster.restarts(task)
            bit = _kill_in_save(run, run.cluster.pid_of(task))
            await_restart(run, task, before)
            if bit:
                return
        raise FaultError(f"{_ATTEMPTS} saves were over before {task} was killed")

    return fault


def rebooted_in_save(host: str) -> Fault:
    """Take the power from a host while the chief writes a checkpoint, and wait until it has booted."""

    def fault(run: Watched) -> None:
        for _ in range(_ATTEMPTS):
            bit = _kill_in_save(run, run.cluster.init_of(host))
            run.cluster.podman("wait", host)
            run.cluster.podman("start", host)
            run.cluster.await_host(host)
            if bit:
                return
        raise FaultError(f"{_ATTEMPTS} saves were over before {host} lost its power")

    return fault


def _kill_in_save(run: Watched, pid: int) -> bool:
    """Kill a process once a save has begun; return whether that save was still going on afterwards."""
    # A save takes a tenth of a second, less than a command on a host.
    chief = run.cluster.init_of(run.cluster.places["worker0"])
    checkpoints = Path(f"/proc/{chief}/root{RUNS}/{run.run_id}/checkpoints")
    while not any(checkpoints.glob("*.tempstate*")):
        if run.process.poll() is not None:
            raise FaultError("the run ended before its next save")
    os.kill(pid, signal.SIGKILL)
    run.hit_at = time.time()
    return any(checkpoints.glob("*.tempstate*"))


def hangs(task: str) -> Fault:
    """Stop a task's process, and wait until its watchdog has started it again."""

    def fault(run: Watched) -> None:
        before = run.cluster.restarts(task)
        run.cluster.signal(task, "STOP")
        await_restart(run, task, before)

    return fault


def await_restart(run: Watched, task: str, before: int) -> None:
    """Wait until systemd has started a task more than `before` times, or the run has ended."""

    def again() -> bool:
        return run.cluster.restarts(task) > before or run.process.poll() is not None

    wait_for(again, f"a restart of {task}")


def rebooted(*hosts: str) -> Fault:
    """Take the power from hosts at once, give it back, and wait until they have booted."""

    def fault(run: Watched) -> None:
        for host in hosts:
            run.cluster.podman("kill --signal KILL", host)
        for host in hosts:
            run.cluster.podman("start", host)
        for host in hosts:
            run.cluster.await_host(host)

    return fault


def gone(host: str) -> Fault:
    """Take the power from a host until the run has ended."""

    def fault(run: Watched) -> None:
        run.cluster.podman("kill --signal KILL", host)
        try:
            run.end()
        finally:
            run.cluster.podman("start", host)
            run.cluster.await_host(host)
            # After the boot its task waits for a run that is over, as stop.yml says of unreached hosts.
            run.cluster.on_host(host, "systemctl stop 'psfleet-*@*'")

    return fault


def cut(host: str, seconds: float) -> Fault:
    """Cut the tasks' traffic of a host for some seconds; its SSH stays."""
    rules = (
        "add table inet cut; add chain inet cut o { type filter hook output priority -300; };"
        "add rule inet cut o tcp dport 2222-2299 counter drop;"
        "add rule inet cut o tcp sport 2222-2299 counter drop"
    )

    def fault(run: Watched) -> None:
        run.cluster.on_host(host, f"nft '{rules}'")
        try:
            time.sleep(seconds)
            if "packets 0 " in run.cluster.on_host(host, "nft list table inet cut | head -4"):
                raise FaultError(f"the cut of {host} dropped no packet")
        finally:
            run.cluster.on_host(host, "nft delete table inet cut")

    return fault

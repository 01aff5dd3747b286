"""The faults by their numbers: what is done to a run, the proof that it bit, and what must follow."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.cluster import PLACES, FaultError, unit_of, wait_for
from tests.faults.watched import Watched

PROVEN, NOT_PROVEN = "proven", "not proven"
# A fault does its harm, and raises FaultError if it did not bite. It returns once the run can go on.
Fault = Callable[[Watched], None]


@dataclass(frozen=True)
class Row:
    """One fault.

    `number` is that of the fault, `what` says it in words. `hit` are the tasks whose processes it ends. One
    of the texts `told` has to be seen in train.yml's output, if there are any. `options` are those of
    train.yml. The run has to end with `verdict`.
    """

    number: str
    what: str
    fault: Fault
    hit: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    verdict: str = PROVEN


def _killed(*tasks: str) -> Fault:
    def fault(run: Watched) -> None:
        before = {task: run.cluster.restarts(task) for task in tasks}
        for task in tasks:
            run.cluster.signal(task, "KILL")
        for task in tasks:
            _await_restart(run, task, before[task])

    return fault


def _hangs(task: str) -> Fault:
    def fault(run: Watched) -> None:
        before = run.cluster.restarts(task)
        run.cluster.signal(task, "STOP")
        _await_restart(run, task, before)

    return fault


def _await_restart(run: Watched, task: str, before: int) -> None:
    def again() -> bool:
        return run.cluster.restarts(task) > before or run.process.poll() is not None

    wait_for(again, f"a restart of {task}")


def _rebooted(*hosts: str) -> Fault:
    def fault(run: Watched) -> None:
        # As if the power fails: nothing is shut down.
        for host in hosts:
            run.cluster.podman("kill --signal KILL", host)
        for host in hosts:
            run.cluster.podman("start", host)
        for host in hosts:
            run.cluster.await_host(host)

    return fault


def _gone(host: str) -> Fault:
    def fault(run: Watched) -> None:
        run.cluster.podman("kill --signal KILL", host)
        try:
            run.end()
        finally:
            run.cluster.podman("start", host)
            run.cluster.await_host(host)

    return fault


def _cut(host: str, seconds: float) -> Fault:
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


def _newest_checkpoint_damaged(run: Watched) -> None:
    folder = f"/var/lib/psfleet/runs/{run.run_id}/checkpoints"
    wait_for(lambda: _checkpoints(run, folder) > 1, "a second checkpoint")
    newest = f"$(ls -t {folder}/*.data-* | head -n 1)"
    run.cluster.on_host(PLACES["worker0"], f"truncate --size=100 {newest}")
    _killed("ps0", "worker0")(run)


def _checkpoints(run: Watched, folder: str) -> int:
    return int(run.cluster.on_host(PLACES["worker0"], f"ls {folder} | grep -c index || true").strip() or 0)


def _again_and_again(run: Watched) -> None:
    end = time.monotonic() + 600
    while run.process.poll() is None and time.monotonic() < end:
        command = f"systemctl show --value --property=Result {unit_of('worker1')}"
        state = run.cluster.on_host(PLACES["worker1"], command, check=False)
        if state.strip() == "start-limit-hit":
            return
        try:
            run.cluster.signal("worker1", "KILL")
        except FaultError:
            time.sleep(0.2)
    if run.process.poll() is None:
        raise FaultError("worker1 was not given up")


def _controller_killed(run: Watched) -> None:
    run.kill()
    attached = Watched.start(run.cluster, run.run_id)
    run.process, run.lines = attached.process, attached.lines


def _stopped_and_resumed(run: Watched) -> None:
    run.cluster.play("stop.yml", "-e", f"run_id={run.run_id}", check=True)
    run.end()
    resumed = Watched.start(run.cluster, run.run_id)
    run.process, run.lines = resumed.process, resumed.lines


def _chiefs_host_replaced(run: Watched) -> None:
    """The chief's host is gone and the run ends; it goes on with another host in that one's place."""
    wait_for(lambda: "copied to" in str(run.lines) or run.process.poll() is not None, "a copy")
    host = PLACES["worker0"]
    run.cluster.podman("kill --signal KILL", host)
    try:
        run.end()
    finally:
        run.cluster.podman("start", host)
        run.cluster.await_host(host)
    run.cluster.on_host(host, "rm -r /var/lib/psfleet/runs/*")
    resumed = Watched.start(run.cluster, run.run_id)
    run.process, run.lines = resumed.process, resumed.lines


def _second_run(run: Watched) -> None:
    done = run.cluster.play("train.yml", "-e", "run_id=second")
    if done.returncode == 0 or run.run_id not in done.stdout:
        raise FaultError("a second run was not refused by the name of the first")


def _deployed_again(run: Watched) -> None:
    done = run.cluster.play("deploy.yml", check=True)
    if "changed=1" in done.stdout:
        raise FaultError("a deployment with nothing to change has changed something")


def _nothing(run: Watched) -> None:
    """Leave the run alone."""


_SAVES_OFTEN = ("-e", "trainer_checkpoint_interval_seconds=5")
# train.yml waits this long for the host of the chief.
_IMPATIENT = ("-e", "trainer_recovery_deadline_seconds=30")
_NAN = ("-e", "trainer_learning_rate=1e30")
# Else the other worker reaches the last step before the hung one is back.
_LONGER = ("-e", "trainer_steps=80000")
_ALL = ("ps0", "worker0", "worker1")

ROWS = (
    Row("none 1", "no fault", _nothing),
    Row("none 2", "no fault", _nothing),
    Row("F1", "a worker is killed", _killed("worker1"), ("worker1",), ("worker1",)),
    Row("F2", "the chief is killed", _killed("worker0"), ("worker0",), ("worker0",)),
    Row("F3", "a ps is killed", _killed("ps0"), ("ps0",), ("ps0",)),
    Row("F4", "ps and chief are killed at once", _killed("ps0", "worker0"), _ALL[:2], _ALL[:2]),
    Row("F5", "a worker hangs", _hangs("worker1"), ("worker1",), ("worker1",), _LONGER),
    Row("F6", "a ps hangs", _hangs("ps0"), ("ps0",), ("ps0",)),
    Row("F8", "a worker's host reboots", _rebooted("node3"), ("worker1",), ("node3", "worker1")),
    Row("F8 chief", "the chief's host reboots", _rebooted("node2"), ("worker0",), ("node2", "worker0")),
    Row("F9", "the host of the ps reboots", _rebooted("node1"), ("ps0",), ("node1", "ps0")),
    Row("F10", "the network between a worker and the ps is cut for 40 s", _cut("node3", 40)),
    Row("F11", "a worker's host goes for good", _gone("node3"), told=("node3",), verdict=NOT_PROVEN),
    Row(
        "F11 chief",
        "the chief's host goes for good, and the run goes on with another host in its place",
        _chiefs_host_replaced,
        told=("fetched the copy",),
        options=(*_SAVES_OFTEN, *_IMPATIENT),
    ),
    Row("F14", "the loss becomes NaN", _nothing, told=("NaN",), options=_NAN, verdict=NOT_PROVEN),
    Row("F17", "the controller dies, and train.yml is typed again", _controller_killed),
    Row("F19", "stop.yml in the middle, then train.yml with the same run id", _stopped_and_resumed),
    Row("F21", "a second run is started on the same hosts", _second_run),
    Row("F24", "deploy.yml during training, with nothing to change", _deployed_again),
    Row("F26", "all hosts go down at once", _rebooted("node3", "node1", "node2"), _ALL, ("node1", *_ALL)),
    Row("F28", "a worker is killed again and again", _again_and_again, told=("worker1",), verdict=NOT_PROVEN),
    Row(
        "F32",
        "the newest checkpoint is damaged, then ps and chief are killed",
        _newest_checkpoint_damaged,
        _ALL[:2],
        ("damaged", "ps0"),
        _SAVES_OFTEN,
    ),
)

# Faults that this driver does not inject, and where they are tried instead.
NOT_HERE = {
    "F7": "a late worker: Molecule `replication`, missing_worker.yml",
    "F12, F31": "full disks: Molecule `default`, full_disk.yml",
    "F13": "a crash during the save: tests/trainer/task/test_saving.py, model/test_checkpoints.py",
    "F15, F16, F29": "errors of programs, memory, data: Molecule `replication`, program_error.yml, data.yml",
    "F18": "a killed deployment: tests/plugins/steps/test_content_release.py, test_python_environment.py",
    "F20": "the column `left over` of every row",
    "F22, F23": "clocks and damaged records: tests/psfleet/evidence",
    "F25": "a release under a run: Molecule `default`, old_things.yml",
    "F27": "a slow and lossy network: `make chaos`",
    "F30": "a stranger at the port: Molecule `default`, fence.yml",
}

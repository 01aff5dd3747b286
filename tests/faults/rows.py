"""The faults by their numbers: what is done to a run, the proof that it bit, and what must follow."""

import socket
import time
from dataclasses import dataclass

from tests.faults.cluster import PRACTICE, FaultError, unit_of, wait_for
from tests.faults.injections import (
    Fault,
    cut,
    gone,
    hangs,
    killed,
    killed_in_save,
    rebooted,
    rebooted_in_save,
)
from tests.faults.watched import Watched

PROVEN, NOT_PROVEN, CANNOT_TELL = "proven", "not proven", "cannot tell"


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


def _newest_checkpoint_damaged(run: Watched) -> None:
    folder = f"/var/lib/psfleet/runs/{run.run_id}/checkpoints"
    wait_for(lambda: _checkpoints(run, folder) > 1, "a second checkpoint")
    newest = f"$(ls -t {folder}/*.data-* | head -n 1)"
    run.cluster.on_host(run.cluster.places["worker0"], f"truncate --size=100 {newest}")
    killed("ps0", "worker0")(run)


def _checkpoints(run: Watched, folder: str) -> int:
    counted = run.cluster.on_host(run.cluster.places["worker0"], f"ls {folder} | grep -c index || true")
    return int(counted.strip() or 0)


def _again_and_again(run: Watched) -> None:
    end = time.monotonic() + 600
    while run.process.poll() is None and time.monotonic() < end:
        command = f"systemctl show --value --property=Result {unit_of('worker1')}"
        state = run.cluster.on_host(run.cluster.places["worker1"], command, check=False)
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
    run.follow(Watched.start(run.cluster, run.run_id))


def _stopped_and_resumed(run: Watched) -> None:
    run.cluster.play("stop.yml", "-e", f"run_id={run.run_id}", check=True)
    run.end()
    run.follow(Watched.start(run.cluster, run.run_id))


def _resized(run: Watched) -> None:
    """Give worker 1's host a second worker, and go on in one command; then deploy the first plan again."""
    variables = run.cluster.folder / PRACTICE / "host_vars" / f"{run.cluster.places['worker1']}.yml"
    variables.parent.mkdir(exist_ok=True)
    variables.write_text("trainer_worker_tasks: 2\n", encoding="utf-8")
    run.hit_at = time.time()
    try:
        resumed = Watched.start(run.cluster, run.run_id, before=("stop.yml", "deploy.yml"))
        run.end()
        run.follow(resumed)
        run.end()
    finally:
        variables.unlink()
        run.cluster.play("deploy.yml", check=True)
    if not run.first_line(("its workers were 2, then 3",), 0.0):
        raise FaultError("\n".join(line for _, line in run.lines[-30:]))


def _leaves(run: Watched) -> None:
    """Let worker 1 leave the run, which goes on; its host does not start it at the next boot."""
    run.hit_at = time.time()
    run.cluster.play("stop.yml", "--limit", run.cluster.places["worker1"], check=True)
    command = f"systemctl is-enabled {unit_of('worker1')} || true"
    if run.cluster.on_host(run.cluster.places["worker1"], command).strip() != "disabled":
        raise FaultError("worker1 would start at the next boot")


def _joins(run: Watched) -> None:
    """Let worker 1 join the run by another train.yml, which is killed once that is done."""
    run.hit_at = time.time()
    joining = Watched.start(run.cluster, run.run_id)
    command = f"systemctl is-active {unit_of('worker1')} || true"

    def is_there() -> bool:
        state = run.cluster.on_host(run.cluster.places["worker1"], command).strip()
        return state == "active" or joining.process.poll() is not None

    wait_for(is_there, "worker1 to join")
    joining.kill()


def _joins_late(run: Watched) -> None:
    """Let worker 1 join a run that began without its host, and go on with the command that reaches all."""
    run.hit_at = time.time()
    limited, joining = run.process, Watched.start(run.cluster, run.run_id)
    run.follow(joining)
    run.end()
    limited.wait()


def _leaves_and_joins(run: Watched) -> None:
    _leaves(run)
    wait_for(
        lambda: "left the run" in str(run.lines) or run.process.poll() is not None, "the leave to be told"
    )
    _joins(run)


def _chiefs_host_replaced(run: Watched) -> None:
    """Lose the chief's host until the run has ended; go on with a bare host in its place."""
    wait_for(lambda: "copied to" in str(run.lines) or run.process.poll() is not None, "a copy")
    host = run.cluster.places["worker0"]
    run.cluster.podman("kill --signal KILL", host)
    try:
        run.end()
    finally:
        run.cluster.remove_psfleet(host)
        run.cluster.podman("start", host)
        run.cluster.await_host(host)
        run.cluster.play("deploy.yml", check=True)
    run.follow(Watched.start(run.cluster, run.run_id))


def _second_run(run: Watched) -> None:
    done = run.cluster.play("train.yml", "-e", "run_id=second")
    if done.returncode == 0 or run.run_id not in done.stdout:
        raise FaultError("a second run was not refused by the name of the first")


def _deployed_again(run: Watched) -> None:
    refused = run.cluster.play("deploy.yml")
    if refused.returncode == 0 or f"run {run.run_id} is going on" not in refused.stdout:
        raise FaultError("a deployment during a run was not refused by its name")
    done = run.cluster.play("deploy.yml", "-e", "trainer_deploy_during_run=true", check=True)
    if "changed=1" in done.stdout:
        raise FaultError("a deployment with nothing to change has changed something")


def _stranger_knocks(run: Watched) -> None:
    address, port = run.cluster.on_host("node1", "hostname --all-ip-addresses").split()[0], 2222
    for _ in range(3):
        try:
            socket.create_connection((address, port), 9).close()
        except ConnectionRefusedError:
            continue
        raise FaultError("a stranger reached the port of ps0")
    shown = run.cluster.play("status.yml", check=True).stdout
    if "The port fence refused 3 connections to ps0 on node1" not in shown:
        raise FaultError(f"status.yml does not show that a stranger was refused: {shown}")


def _diverges(run: Watched) -> None:
    run.end()
    if not run.first_line(("failed (diverged)",), 0.0):
        raise FaultError("train.yml does not say that the loss diverged")


def _nothing(run: Watched) -> None:
    """Leave the run alone."""


_CHIEF = ("-e", "training_run_success=chief")
_SAVES_OFTEN = ("-e", "trainer_checkpoint_interval_seconds=5")
# train.yml waits this long for a lost host.
_IMPATIENT = ("-e", "trainer_recovery_deadline_seconds=30")
_TOO_FAST = ("-e", "trainer_learning_rate=1e30")
# Else the other worker reaches the last step before the hung one is back.
_LONGER = ("-e", "trainer_steps=80000")
_ALL = ("ps0", "worker0", "worker1")

ROWS = (
    Row("none/1", "no fault", _nothing),
    Row("none/2", "no fault", _nothing),
    Row("F1", "a worker is killed", killed("worker1"), ("worker1",), ("worker1",)),
    Row("F2", "the chief is killed", killed("worker0"), ("worker0",), ("worker0",)),
    Row(
        "F1/save",
        "a worker is killed in a save",
        killed_in_save("worker1"),
        ("worker1",),
        ("worker1",),
        _SAVES_OFTEN,
    ),
    Row(
        "F2/save",
        "the chief is killed in a save",
        killed_in_save("worker0"),
        ("worker0",),
        ("worker0",),
        _SAVES_OFTEN,
    ),
    Row("F3/save", "a ps is killed in a save", killed_in_save("ps0"), ("ps0",), ("ps0",), _SAVES_OFTEN),
    Row("F3", "a ps is killed", killed("ps0"), ("ps0",), ("ps0",)),
    Row("F4", "ps and chief are killed at once", killed("ps0", "worker0"), _ALL[:2], _ALL[:2]),
    Row("F5", "a worker hangs", hangs("worker1"), ("worker1",), ("worker1",), _LONGER),
    Row("F6", "a ps hangs", hangs("ps0"), ("ps0",), ("ps0",)),
    Row("F8", "a worker's host reboots", rebooted("node3"), ("worker1",), ("node3", "worker1")),
    Row("F8/chief", "the chief's host reboots", rebooted("node2"), ("worker0",), ("node2", "worker0")),
    Row("F9", "the host of the ps reboots", rebooted("node1"), ("ps0",), ("node1", "ps0")),
    Row(
        "F9/save",
        "the host of the ps reboots in a save",
        rebooted_in_save("node1"),
        ("ps0",),
        ("node1", "ps0"),
        _SAVES_OFTEN,
    ),
    Row("F10", "the network between a worker and the ps is cut for 40 s", cut("node3", 40), options=_LONGER),
    Row(
        "F11",
        "a worker's host is lost for good; only the chief must finish",
        gone("node3"),
        told=("node3",),
        options=(*_CHIEF, *_IMPATIENT),
    ),
    Row(
        "F11/number",
        "a worker's host is lost for good; one of two workers must finish",
        gone("node3"),
        told=("node3",),
        options=("-e", "training_run_success=1", *_IMPATIENT),
    ),
    Row(
        "F11/all",
        "a worker's host is lost for good; all workers must finish",
        gone("node3"),
        told=("node3",),
        options=_IMPATIENT,
        verdict=CANNOT_TELL,
    ),
    Row(
        "F11/chief",
        "the chief's host is lost for good; another host takes its place",
        _chiefs_host_replaced,
        told=("fetched the copy",),
        options=(*_SAVES_OFTEN, *_IMPATIENT),
        verdict=NOT_PROVEN,  # the chief's records of the time before are gone
    ),
    Row("F14", "the loss diverges", _diverges, options=_TOO_FAST, verdict=NOT_PROVEN),
    Row("F17", "the controller dies, and train.yml is typed again", _controller_killed),
    Row("F19", "stop.yml in the middle, then train.yml with the same run id", _stopped_and_resumed, _ALL),
    Row(
        "F19/workers",
        "a third worker joins: stop.yml, deploy.yml and train.yml in one command",
        _resized,
        _ALL,
        options=_LONGER,
    ),
    Row(
        "F19/leaves",
        "a worker leaves by stop.yml --limit; only the chief must finish",
        _leaves,
        told=("worker1 on node3 left the run",),
        options=(*_CHIEF, *_LONGER),
    ),
    Row(
        "F19/joins",
        "the same, and the worker joins again by train.yml with the same run id",
        _leaves_and_joins,
        ("worker1",),
        ("worker1 on node3 joined the run",),
        (*_CHIEF, *_LONGER),
    ),
    Row(
        "F19/late",
        "a run begins without a worker's host, which joins later",
        _joins_late,
        ("worker1",),
        ("worker1 on node3 joins run",),
        (*_CHIEF, *_LONGER, "--limit", "all:!node3"),
    ),
    Row("F21", "a second run is started on the same hosts", _second_run),
    Row("F24", "deploy.yml during training, with nothing to change", _deployed_again),
    Row("F26", "all hosts go down at once", rebooted("node3", "node1", "node2"), _ALL, ("node1", *_ALL)),
    Row("F28", "a worker is killed again and again", _again_and_again, told=("worker1",), verdict=NOT_PROVEN),
    Row("F30", "a stranger connects to the port of the ps", _stranger_knocks),
    Row(
        "F32",
        "the newest checkpoint is damaged, then ps and chief are killed",
        _newest_checkpoint_damaged,
        _ALL[:2],
        ("damaged",),
        _SAVES_OFTEN,
    ),
)

# Faults that this driver does not inject, and where they are tried instead:
# F7, a late worker: Molecule `replication`, missing_worker.yml
# F12, F31, full disks: Molecule `upkeep`, full_disk.yml
# F13, a crash during the save: tests/trainer/task/test_saving.py, tests/trainer/model/test_checkpoints.py
# F15, F16, F29, errors of programs, memory, data: Molecule `inventories`, wrong_programs.yml; `replication`,
#   data.yml
# F18, a killed deployment: tests/plugins/modules/test_content_release.py, test_python_environment.py
# F20, processes left over: every row
# F22, F23, clocks and damaged records: tests/psfleet/evidence
# F25, a release under a run: Molecule `default`, old_things.yml
# F27, a slow and lossy network: `make chaos`

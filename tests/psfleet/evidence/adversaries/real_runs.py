"""Runs of real tasks on loopback, good ones and bad ones, each trained once for all who look at it.

What decides how a run goes is counted in steps (pace.py), never in seconds: a busy machine changes none.
"""

import fcntl
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from psfleet.run.folder import write_beginning
from tests.psfleet.evidence.adversaries.pace import Pace, stands_still, waiting_at
from tests.psfleet.evidence.adversaries.split_runs import each_on_its_own_ps, third_worker_on_its_own_ps
from tests.psfleet.evidence.program_folders import PHASES, TUTORIAL, fork_program
from tests.psfleet.evidence.replications import KINDS
from tests.psfleet.evidence.replications import STEPS as STEPS_OF_KINDS
from tests.psfleet.evidence.run_folders import (
    RELEASE,
    RUN_ID,
    evaluate,
    plan_of,
    settings_of,
    train,
    write_plan,
)
from tests.trainer.forked import ForkedProcess
from tests.trainer.ports import free_ports
from tests.trainer.processes import PAUSING, Cluster, Processes
from trainer.contract.exit_codes import DIVERGED, STOPPED
from trainer.contract.plan import JOBS

LINEAR = "--model=linear"
_TABLE_STEPS = 400
# TensorFlow prepares a graph for each number of steps in a call, which costs more than the steps.
_TABLES = ("--model=wide_deep", "--batch_size=512", f"--steps={_TABLE_STEPS}", "--steps_per_call=1")
STEPS = 400
# Functions of phases.py.
PHASES_OF_PROGRAMS = (
    *("grown", "alone_first", "other_graph", "by_turns", "own_monitored_session", "own_server"),
    *("by_callable", "in_a_loop", "eagerly", "counts_alone", "claims", "claims_from_the_beginning"),
    *("own_state", "own_slots", "refreshed", "idle", "idle_and_alone", "in_graph"),
)
# The replication, which task is killed and comes back, and whose pace tells when.
CAME_BACK = {
    "in_graph_worker1_came_back": ("in_graph", "worker1", "worker0", Pace(stops_itself_at=101)),
    "in_graph_client_came_back": ("in_graph", "worker0", "worker0", Pace(kills_itself_at=101)),
    "sync_worker1_came_back": ("sync", "worker1", "worker1", Pace(kills_itself_at=101)),
    # Before the first interval between checkpoints is over: all goes on from the first values.
    "sync_ps_came_back": ("sync", "ps0", "worker0", Pace(stops_itself_at=101)),
}


class RealRuns:
    """The runs by name. Each is trained when it is first asked for, and its folder is nobody's to change.

    A folder may hold runs from before, and those of other processes, which train each run once among them.
    """

    def __init__(self, folder: Path) -> None:
        """Take where to train; the folder is there."""
        self._folder = folder
        self._trained: dict[str, Path] = {}

    def of(self, name: str) -> Path:
        """Return the folder of a run, as it lies in `runs/` of a controller."""
        if name not in self._trained:
            place, trained = self._folder / name, self._folder / f"{name}.trained"
            with (self._folder / f"{name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not trained.exists():
                    shutil.rmtree(place, ignore_errors=True)
                    place.mkdir()
                    trained.write_text(str(_MAKERS[name](self, place)))
            self._trained[name] = Path(trained.read_text())
        return self._trained[name]

    def tasks_of(self, name: str) -> Processes[ForkedProcess]:
        """Return the tasks of a run, by what they printed and left on their hosts."""
        return Processes(self.of(name).parent / "hosts")

    def chief_of(self, name: str) -> Path:
        """Return what the chief of a run had on its host: its run directory, with checkpoints."""
        return self.of(name).parent / "hosts" / "worker0"


def _healthy(_runs: RealRuns, folder: Path) -> Path:
    return train(folder, 2, (LINEAR, f"--steps={STEPS}"))


def _ended_early(_runs: RealRuns, folder: Path) -> Path:
    """An evaluation ends the run long before its last step; those before it are above the bound."""
    flags = (LINEAR, "--steps=1000000", "--evaluate_every_steps=100", "--stop_when=loss<0.115")
    programs = dict.fromkeys(("worker0", "worker1"), PAUSING)  # the cores are for the evaluations
    return train(folder, 2, (*flags, "--learning_rate=0.01"), programs=programs)


def _alone(_runs: RealRuns, folder: Path) -> Path:
    """One worker; with the records of others it makes a split run, so it draws as a second one would."""
    return train(folder, 1, (LINEAR, f"--steps={STEPS}", "--seed=2"))


def _alone_as_chief(_runs: RealRuns, folder: Path) -> Path:
    return train(folder, 1, (LINEAR, f"--steps={STEPS}"))


def _each_on_its_own_ps(runs: RealRuns, folder: Path) -> Path:
    return each_on_its_own_ps(runs.of("alone_as_chief"), runs.of("alone"), folder)


def _third_worker_on_its_own_ps(runs: RealRuns, folder: Path) -> Path:
    return third_worker_on_its_own_ps(runs.of("healthy"), runs.of("alone"), folder)


def _asleep(_runs: RealRuns, folder: Path) -> Path:
    """Worker 1 stands still after 20 steps, until 95 % of the run are over."""
    steps, wakes, done = 800, 760, 20

    def wake_worker1(cluster: Cluster) -> None:
        cluster.until(lambda: waiting_at(wakes) in cluster.output("worker0"), "a chief that waits")
        cluster.until(lambda: stands_still(cluster.only("worker1", "started").pid), "a worker that sleeps")
        cluster.signal("worker1", signal.SIGCONT)

    programs = {
        "worker0": Pace(waits={wakes: done + 1}).program,
        "worker1": Pace(stops_itself_at=done + 1).program,
    }
    return train(folder, 2, (LINEAR, f"--steps={steps}"), wake_worker1, programs=programs)


def _joined_late(_runs: RealRuns, folder: Path) -> Path:
    """Worker 1 takes its first step when 99 % of the run are over."""
    steps, joins = 600, 594
    programs = {
        "worker0": Pace(waits={joins: 1}).program,
        # After its own first step it lets the chief take one, so that their steps do interleave.
        "worker1": Pace(waits={0: joins, joins + 1: joins + 1}).program,
    }
    return train(folder, 2, (LINEAR, f"--steps={steps}"), programs=programs)


def _begun_anew(_runs: RealRuns, folder: Path) -> Path:
    """The chief and the ps are killed, the checkpoints removed, and both come back; worker 1 stays."""

    def lose_the_model(cluster: Cluster) -> None:
        cluster.until(lambda: cluster.has_ended("worker0"), "a chief that killed itself")
        cluster.signal("ps0", signal.SIGKILL)
        shutil.rmtree(cluster.directory("worker0") / "checkpoints")
        cluster.start("ps0", "worker0")

    programs = {
        "worker0": Pace(kills_itself_at=101).program,
        "worker1": Pace(waits={150: 200}).program,
    }
    flags = (LINEAR, "--steps=800", "--checkpoint_interval_steps=50")
    return train(folder, 2, flags, lose_the_model, programs=programs)


def _killed_and_back(_runs: RealRuns, folder: Path) -> Path:
    """Worker 1 is killed after 150 steps and started again; meanwhile the chief goes on for a while."""

    def start_again(cluster: Cluster) -> None:
        cluster.until(lambda: cluster.has_ended("worker1"), "a worker that killed itself")
        cluster.start("worker1")

    programs = {"worker0": Pace(waits={400: 200}).program, "worker1": Pace(kills_itself_at=151).program}
    return train(folder, 2, (LINEAR, "--steps=800"), start_again, programs=programs)


def _resized(replication: str, *numbers: tuple[int, int]) -> Callable[[RealRuns, Path], Path]:
    """Return what trains a run that is stopped, and goes on with other numbers of ps and of workers."""
    flags = (LINEAR, f"--replication={replication}")

    def train_parts(_runs: RealRuns, folder: Path) -> Path:
        run, steps = folder / RUN_ID, 0
        most = [max(of_job) for of_job in zip(*numbers, strict=True)]
        free = [f"127.0.0.1:{port}" for port in free_ports(sum(most))]
        addresses = {"ps": free[: most[0]], "worker": free[most[0] :]}
        (run / "events").mkdir(parents=True)
        for place, (ps, workers) in enumerate(numbers):
            is_last = place + 1 == len(numbers)
            with Cluster(folder / "hosts", ps, workers, flags, program=PAUSING) as cluster:
                cluster.hosts = {"ps": addresses["ps"][:ps], "worker": addresses["worker"][:workers]}
                plan = plan_of(
                    *(("ps", each) for each in cluster.hosts["ps"]),
                    *(("worker", each) for each in cluster.hosts["worker"]),
                )
                cluster.environment = {"PSFLEET_PLAN_HASH": plan.hash, "PSFLEET_RELEASE": RELEASE}
                wanted = [f"--steps={steps + STEPS if is_last else 10**6}"]
                settings = {"training": settings_of([*flags, *wanted]).as_dict(), "program": None}
                begun = {"folder": str(run), "settings": settings, "action": "start"}
                write_beginning(begun, plan.to_json())
                cluster.start(flags=wanted)
                if not is_last:
                    cluster.until_steps(STEPS)
                    cluster.signal("worker0", signal.SIGTERM)
                stopped = {} if is_last else {"worker0": STOPPED}
                assert cluster.wait() == dict.fromkeys(cluster.tasks, 0) | stopped, cluster.outputs()
                steps = cluster.records("worker0", "finished")[-1].integer("global_step")
                for task in cluster.tasks:
                    shutil.copy(cluster.directory(task) / "events" / f"{task}.jsonl", run / "events")
            # As with --evaluate_every_steps, there are evaluations in each part.
            evaluate(folder / "hosts" / "worker0", run)
        return run

    return train_parts


def _lost_for_good(_runs: RealRuns, folder: Path) -> Path:
    """Worker 2 kills itself after a third of its steps' share, and never comes back; the others go on."""
    together = Pace(waits={300: 200}).program  # until each of the three has taken 100 steps
    programs = {"worker0": together, "worker1": together, "worker2": Pace(kills_itself_at=101).program}
    flags = (LINEAR, "--steps=900", "--learning_rate=0.02")  # a single worker does not learn it in a call
    return train(folder, 3, flags, programs=programs, lost="worker2")


def _elastic(join_again: bool) -> Callable[[RealRuns, Path], Path]:
    """Return what trains a run that begins without worker 2, and that worker 1 leaves after 100 steps.

    With `join_again` worker 1 is back when the chief has taken 600 of 900 steps, and worker 2 comes then.
    """
    flags = (LINEAR, "--steps=900", "--steps_per_call=1")
    at_first = {
        "worker0": Pace(stops_itself_at=601, waits={780: 200} if join_again else {}),
        # It takes no step more until it is told to leave: the chief stands still then, after 600 steps.
        "worker1": Pace(stops_itself_at=101, waits={700: 601}),
    }
    # Neither takes all the steps that are left.
    later = {
        "worker2": Pace(stops_itself_at=31, waits={800: 760}),
        "worker1": Pace(stops_itself_at=131, waits={800: 660}),
    }

    def train_elastic(_runs: RealRuns, folder: Path) -> Path:
        run = folder / RUN_ID
        (run / "events").mkdir(parents=True)
        with Cluster(folder / "hosts", 1, 3, flags) as cluster:
            plan = plan_of(*((job, each) for job in JOBS[:2] for each in cluster.hosts[job]))
            write_plan(run, plan, settings_of(flags).as_dict())

            def await_stop(task: str) -> None:
                pid = cluster.records(task, "started")[-1].pid
                cluster.until(lambda: stands_still(pid), f"{task} to stand still")

            cluster.environment = {"PSFLEET_PLAN_HASH": plan.hash, "PSFLEET_RELEASE": RELEASE}
            cluster.environment["PSFLEET_ABSENT_WORKERS"] = "2"
            cluster.start("ps0")
            for task, pace in at_first.items():
                cluster.start(task, program=pace.program)
            for task in at_first:
                cluster.until(lambda of=task: bool(cluster.records(of, "peers_ready")), f"{task} to begin")  # type: ignore[misc]
                await_stop(task)
            cluster.signal("worker1", signal.SIGTERM)
            cluster.signal("worker1", signal.SIGCONT)
            assert cluster.wait("worker1") == {"worker1": STOPPED}, cluster.outputs()
            for task, pace in later.items() if join_again else ():
                cluster.start(task, program=pace.program)
                lives = 1 + (task == "worker1")
                cluster.until(
                    lambda of=task, so_many=lives: len(cluster.records(of, "peers_ready")) == so_many,  # type: ignore[misc]
                    f"{task} to join",
                )
                await_stop(task)
            cluster.signal("worker0", signal.SIGCONT)
            if join_again:
                cluster.until(lambda: waiting_at(780) in cluster.output("worker0"), "a chief that waits")
                for task in later:
                    cluster.signal(task, signal.SIGCONT)
            left = {} if join_again else {"worker1": STOPPED}
            assert cluster.wait() == dict.fromkeys(cluster.processes, 0) | left, cluster.outputs()
            for task in cluster.processes:
                shutil.copy(cluster.directory(task) / "events" / f"{task}.jsonl", run / "events")
        evaluate(folder / "hosts" / "worker0", run)
        return run

    return train_elastic


def _three_workers(_runs: RealRuns, folder: Path) -> Path:
    return train(folder, 3, (LINEAR, f"--steps={STEPS}"))


def _faulty(fault: str) -> Callable[[RealRuns, Path], Path]:
    """Worker 1 of three computes its loss, and pushes something else than its gradients."""
    programs = {"worker1": _with(fault)}
    return lambda _runs, folder: train(folder, 3, (LINEAR, "--steps=600"), programs=programs)


def _with(fault: str) -> Sequence[str]:
    """Return the trainer with a fault, as `Cluster.start` takes a program."""
    # By its path: who imports it has TensorFlow in the process of the tests.
    return [str(Path(__file__).with_name("faulty_trainer.py")), fault]


def _tables(fault: str = "") -> Callable[[RealRuns, Path], Path]:
    """Two workers and two ps train a model with tables; with a fault, that of worker 1."""
    programs = {"worker1": _with(fault)} if fault else None
    return lambda _runs, folder: train(folder, 2, _TABLES, programs=programs, ps=2)


def _tables_restored(fault: str) -> Callable[[RealRuns, Path], Path]:
    """Return what trains such a run whose chief and second ps are lost, and that is restored with a fault."""

    def train_twice(runs: RealRuns, folder: Path) -> Path:
        saved = (runs.chief_of("tables") / "checkpoints").glob("*.index")
        # Only the last one has the rows of tables on the chief's disk.
        other = max(saved, key=lambda path: int(path.stem.rpartition("-")[2])).with_suffix("")

        def restore(cluster: Cluster) -> None:
            cluster.until(lambda: cluster.has_ended("worker0"), "a chief that killed itself")
            cluster.signal("ps1", signal.SIGKILL)
            cluster.until(lambda: cluster.has_ended("ps1"), "the end of a ps")
            cluster.start("ps1")
            cluster.start("worker0", program=_with(str(other) if fault == "other_table" else fault))

        programs = {"worker0": Pace(kills_itself_at=101).program, "worker1": Pace(waits={200: 120}).program}
        flags = (*_TABLES, "--checkpoint_interval_steps=50")
        return train(folder, 2, flags, restore, ps=2, programs=programs)

    return train_twice


def _ps_alone(fault: str = "") -> Callable[[RealRuns, Path], Path]:
    """Return what trains such a run whose second ps is lost, and restores its part alone, or with a fault."""

    def lose_ps1(cluster: Cluster) -> None:
        # Worker 1 has taken a step after the chief's last one: the global step is beyond all checkpoints.
        cluster.until(lambda: waiting_at(201) in cluster.output("worker1"), "a worker that waits")
        cluster.until(
            lambda: stands_still(cluster.only("worker0", "started").pid), "a chief that stands still"
        )
        cluster.signal("ps1", signal.SIGKILL)
        cluster.start("ps1", program=_with(fault) if fault else ())
        cluster.signal("worker0", signal.SIGCONT)

    programs = {"worker0": Pace(stops_itself_at=101).program, "worker1": Pace(others_per_step=1).program}
    flags = (*_TABLES, "--ps_recovery=partial", "--checkpoint_interval_steps=50")
    return lambda _runs, folder: train(folder, 2, flags, lose_ps1, ps=2, programs=programs)


def _slow(_runs: RealRuns, folder: Path) -> Path:
    """Worker 1 takes one step while worker 0 takes five."""
    programs = {"worker1": Pace(others_per_step=5).program}
    return train(folder, 2, (LINEAR, "--steps=900"), programs=programs)


def _diverged(_runs: RealRuns, folder: Path) -> Path:
    return train(folder, 2, (LINEAR, f"--steps={STEPS}", "--learning_rate=1e30"), exit_code=DIVERGED)


def _learned_nothing(_runs: RealRuns, folder: Path) -> Path:
    return train(folder, 2, (LINEAR, f"--steps={STEPS}", "--learning_rate=1e-9"))


def _plateau(_runs: RealRuns, folder: Path) -> Path:
    """Ten digits through one hidden unit: the loss falls at first, and no further."""
    flags = ("--model=mnist_mlp", "--hidden_units=1", "--activation=relu", "--optimizer=adam")
    return train(folder, 2, (*flags, "--learning_rate=0.03", "--steps=600"))


def _noisy(_runs: RealRuns, folder: Path) -> Path:
    """One example to a step; it also keeps checkpoints of the way to its final model."""
    flags = ("--batch_size=1", "--learning_rate=0.02", "--checkpoint_interval_steps=500")
    return train(folder, 2, (LINEAR, "--steps=1500", *flags))


def _sync_on_servers(_runs: RealRuns, folder: Path) -> Path:
    """In step: what asynchronous workers reach in so few steps depends on who came first."""
    flags = ("--model=cnn", "--replication=sync", "--existing_servers=true", "--shard_data=true")
    return train(folder, 2, (*flags, "--steps=150"))


def _came_back(kind: str) -> Callable[[RealRuns, Path], Path]:
    """A task kills itself, or is killed while the client stands still, and comes back."""
    replication, killed, paced, pace = CAME_BACK[kind]

    def kill(cluster: Cluster) -> None:
        if paced == killed:
            cluster.until(lambda: cluster.has_ended(killed), "a task that killed itself")
        else:
            cluster.until(lambda: bool(cluster.records(paced, "started")), "a client")
            pid = cluster.only(paced, "started").pid
            cluster.until(lambda: stands_still(pid), "a client that stands still")
            cluster.signal(killed, signal.SIGKILL)
        cluster.start(killed)
        cluster.signal(paced, signal.SIGCONT)

    flags = (LINEAR, f"--steps={STEPS}", f"--replication={replication}")
    return lambda _runs, folder: train(folder, 2, flags, kill, programs={paced: pace.program})


def _tutorial(how: str, ps: int = 1) -> Callable[[RealRuns, Path], Path]:
    return lambda _runs, folder: fork_program(folder, f"--how={how}", program=TUTORIAL, ps=ps)


def _phases(how: str) -> Callable[[RealRuns, Path], Path]:
    return lambda _runs, folder: fork_program(folder, f"--how={how}", program=PHASES)


def _of_kind(kind: str) -> Callable[[RealRuns, Path], Path]:
    flags, ps, workers = KINDS[kind]
    return lambda _runs, folder: train(folder, workers, (*flags, f"--steps={STEPS_OF_KINDS}"), ps=ps)


_MAKERS: Mapping[str, Callable[[RealRuns, Path], Path]] = {
    "healthy": _healthy,
    "ended_early": _ended_early,
    "alone": _alone,
    "alone_as_chief": _alone_as_chief,
    "each_on_its_own_ps": _each_on_its_own_ps,
    "third_worker_on_its_own_ps": _third_worker_on_its_own_ps,
    "asleep": _asleep,
    "joined_late": _joined_late,
    "begun_anew": _begun_anew,
    "killed_and_back": _killed_and_back,
    "lost_for_good": _lost_for_good,
    "left_and_joined": _elastic(join_again=True),
    "left_for_good": _elastic(join_again=False),
    "resized": _resized("async", (1, 2), (2, 3), (1, 2)),
    "resized_sync": _resized("sync", (2, 3), (1, 2)),
    "three_workers": _three_workers,
    "slow": _slow,
    "zeros_of_worker1": _faulty("zeros"),
    "noise_of_worker1": _faulty("noise"),
    "tables": _tables(),
    "tables_own": _tables("own_tables"),
    "partition_tables_own": lambda _runs, folder: train(
        folder, 2, ("--model=partition", "--steps=600"), programs={"worker1": _with("own_tables")}, ps=2
    ),
    "tables_rows_dropped": _tables("rows_dropped"),
    "tables_rows_shifted": _tables("rows_shifted"),
    "tables_one_ps_restored": _tables_restored("one_ps_restored"),
    "tables_restored_permuted": _tables_restored("restored_permuted"),
    "tables_ps_alone": _ps_alone(),
    "tables_ps_alone_other_rows": _ps_alone("other_rows_offered"),
    "tables_of_another_run": _tables_restored("other_table"),
    "diverged": _diverged,
    "learned_nothing": _learned_nothing,
    "plateau": _plateau,
    "noisy": _noisy,
    "sync_on_servers": _sync_on_servers,
    "program": lambda _runs, folder: fork_program(folder),
    "program_alone": lambda _runs, folder: fork_program(folder, "--alone"),
    "tutorial": _tutorial("supervisor"),
    "tutorial_synchronous": _tutorial("synchronous"),
    "tutorial_tables": _tutorial("tables", ps=2),
    "tutorial_own_ps": _tutorial("own_ps", ps=2),
    **{f"phases_{how}": _phases(how) for how in PHASES_OF_PROGRAMS},
    **{kind: _of_kind(kind) for kind in KINDS},
    **{kind: _came_back(kind) for kind in CAME_BACK},
}

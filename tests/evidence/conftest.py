"""Real runs, each trained once for all tests, and a copy of the healthy one to damage."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evidence.program_folders import keep_no_records, run_program
from tests.evidence.replications import KINDS, STEPS
from tests.evidence.run_folders import RUN_ID, plan_of, records, rewrite, settings_of, train, write_plan
from tests.program.launched import RUN_ID as PROGRAM_RUN_ID
from tests.trainer.processes import Cluster

LINEAR = "--model=linear"
TASKS = ("ps0", "worker0")
# What only a chief writes.
CHIEF_ONLY = {"initialised", "checkpointed", "evaluated"}


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ps, two workers, one line learned together."""
    return train(tmp_path_factory.mktemp("healthy"), 2, (LINEAR, "--steps=400"))


@pytest.fixture
def run(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the healthy run's folder."""
    return Path(shutil.copytree(healthy, tmp_path / RUN_ID))


@pytest.fixture(scope="session")
def split_brain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clusters of one ps and one worker, told as if they were one: each worker learned the line alone."""
    folder = tmp_path_factory.mktemp("split")
    flags = (LINEAR, "--steps=300")
    ours, theirs = train(folder / "a", 1, flags), train(folder / "b", 1, (*flags, "--seed=2"))
    addresses = {
        (place, task): records(place, task)[0]["address"] for place in (ours, theirs) for task in TASKS
    }
    plan = plan_of(
        ("ps", addresses[ours, "ps0"]),
        ("worker", addresses[ours, "worker0"]),
        ("worker", addresses[theirs, "worker0"]),
    )
    for task in (*TASKS, "evaluator0"):
        rewrite(ours, task, [record | {"plan_hash": plan.hash} for record in records(ours, task)])
    second = []
    for record in records(theirs, "worker0"):
        if record["event"] in CHIEF_ONLY:
            continue
        record |= {"index": 1, "plan_hash": plan.hash}
        if record["event"] == "peers_ready":
            record["worker_nonces"] = {"worker1": record["worker_nonces"]["worker0"]}
        for name in ("contributions", "last_step"):
            record.pop(name, None)
        second.append(record)
    rewrite(ours, "worker1", second)
    write_plan(ours, plan, settings_of(flags).as_dict())
    return ours


@pytest.fixture(scope="session")
def asleep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two workers, the second of which stands still from soon after the start for half of the run.

    It wakes early enough for others to learn away the stale gradient that it brings.
    """
    steps = 6000

    def hold_worker1(cluster: Cluster) -> None:
        def reached(step: int) -> bool:
            return int(str(cluster.progress().get("global_step", 0))) >= step

        cluster.until(lambda: reached(1), "the first step")
        cluster.signal("worker1", signal.SIGSTOP)
        cluster.until(lambda: reached(steps // 2), "half of the run")
        cluster.signal("worker1", signal.SIGCONT)

    return train(tmp_path_factory.mktemp("asleep"), 2, (LINEAR, f"--steps={steps}"), hold_worker1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a real run of a kind, trained where it was not yet."""
    folders: dict[str, Path] = {}

    def run_of(kind: str) -> Path:
        if kind not in folders:
            flags, ps, workers = KINDS[kind]
            folders[kind] = train(tmp_path_factory.mktemp(kind), workers, (*flags, f"--steps={STEPS}"), ps=ps)
        return folders[kind]

    return run_of


@pytest.fixture
def copy_of(trained: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of such a folder, to damage."""
    return lambda kind: Path(shutil.copytree(trained(kind), tmp_path / RUN_ID))


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two workers that share a model."""
    return run_program(tmp_path_factory.mktemp("together"))


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two workers that each train a model of their own."""
    return run_program(tmp_path_factory.mktemp("alone"), "--alone")


@pytest.fixture
def recorded(together: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder."""
    return Path(shutil.copytree(together, tmp_path / PROGRAM_RUN_ID))


@pytest.fixture
def silent(recorded: Path) -> Path:
    """The same of a program that records nothing."""
    keep_no_records(recorded)
    return recorded

"""The programs of examples/, as psfleet runs them: what serves is ended by SIGTERM once the lead ended."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.trainer.program.launched import Tasks
from trainer.contract.exit_codes import FINISHED, STOPPED

EXAMPLES = ROOT / "examples"


def final_loss(tasks: Tasks, name: str) -> float:
    found = re.findall(r"^final loss: ([0-9.]+)$", tasks.output(name), re.MULTILINE)
    assert len(found) == 1, tasks.output(name)
    return float(found[0])


def files(tasks: Tasks, name: str) -> set[str]:
    """The kinds of files that a task left in its run directory."""
    return {path.name.partition("-")[0] for path in (tasks.directory(name) / "checkpoints").glob("*")}


def test_tensorflow_1s_between_graph_replication(tmp_path: Path) -> None:
    with Tasks(tmp_path, EXAMPLES / "tf1_between_graph.py", ps=1, worker=2) as tasks:
        tasks.arguments = ["--steps=1000"]
        tasks.start()
        assert tasks.wait("worker0", "worker1") == {"worker0": FINISHED, "worker1": FINISHED}
        assert tasks.stop("ps0") == {"ps0": STOPPED}
        own = 0
        for worker in ("worker0", "worker1"):
            assert 0.05 < final_loss(tasks, worker) < 0.5
            told = re.findall(r"^local step (\d+)", tasks.output(worker), re.MULTILINE)
            own += max(map(int, told), default=0)
        # Their steps are those of one run. Each tells of every fiftieth alone, and one may come too late.
        assert 1000 - 2 * 50 < own <= 1000 + 1, tasks.outputs()
        assert "model.ckpt" in files(tasks, "worker0")
        assert not files(tasks, "ps0") | files(tasks, "worker1")
        assert tasks.progress("worker0")["phase"] == "finished"
        assert not list(tmp_path.rglob("*.jsonl"))


def test_tensorflow_2s_parameter_servers(tmp_path: Path) -> None:
    with Tasks(tmp_path, EXAMPLES / "tf2_parameter_server.py", chief=1, ps=1, worker=2) as tasks:
        tasks.flags = False
        tasks.arguments = ["--steps=200"]
        tasks.start()
        assert tasks.wait("chief0") == {"chief0": FINISHED}
        assert set(tasks.stop("ps0", "worker0", "worker1").values()) == {STOPPED}
        assert 0.01 < final_loss(tasks, "chief0") < 0.3
        assert files(tasks, "chief0") == {"ckpt", "checkpoint"}
        assert not files(tasks, "ps0")
        assert list((tasks.directory("chief0") / "summaries" / "chief0").glob("events.out.tfevents.*"))
        assert tasks.progress("chief0")["phase"] == "finished"


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example needs beside TensorFlow, installed as deploy.yml does, in a folder of its own."""
    folder = tmp_path_factory.mktemp("requirements")
    subprocess.run(
        [
            Path(sys.executable).with_name("uv"),
            "pip",
            "install",
            f"--target={folder}",
            f"--requirement={EXAMPLES / 'requirements.txt'}",
        ],
        check=True,
        timeout=120,
    )
    return folder


def test_tensorflow_2s_mirrored_workers_with_records(tmp_path: Path, requirements: Path) -> None:
    with Tasks(tmp_path, EXAMPLES / "tf2_multi_worker_mirrored.py", worker=2) as tasks:
        tasks.flags = False
        tasks.arguments = ["--steps=100"]
        tasks.environment = {"PYTHONPATH": str(requirements)}
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED, "worker1": FINISHED}
        assert final_loss(tasks, "worker0") == final_loss(tasks, "worker1") < 0.05
        weights = [re.findall(r"^weights .*$", tasks.output(name), re.MULTILINE) for name in tasks.names]
        assert weights[0] == weights[1] != []
        for name in tasks.names:
            finished = tasks.records(name, "finished")[0]
            assert finished.integer("local_step") == finished.integer("global_step") == 100
            assert re.search(r"^ +50  +0\.\d+$", tasks.output(name), re.MULTILINE)
        losses = [tasks.records(name, "step")[0].number("loss") for name in tasks.names]
        assert losses[0] != losses[1]  # each has examples of its own
        (evaluated,) = tasks.records("worker0", "evaluated")
        assert evaluated.integer("global_step") == 100
        assert tasks.records("worker1", "evaluated") == []
        progress = tasks.progress("worker0")
        assert (progress["phase"], progress["global_step"], progress["last_step"]) == ("finished", 100, 100)
        assert tasks.records("worker0", "started")[0].text("tensorflow").startswith("2.")

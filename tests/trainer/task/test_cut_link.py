"""A link that is cut for a while costs its worker a session, and no more time than the cut."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.networks import Networks
from tests.repository import ROOT
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import STOPPED

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks"),
]

ADDRESSES = {"ps0": "10.77.0.1", "worker0": "10.77.0.2", "worker1": "10.77.0.3"}


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks({task: (four, f"fd77::{four[-1]}") for task, four in ADDRESSES.items()})
    yield made
    made.close()


def test_a_worker_rejoins_as_soon_as_its_cut_link_is_restored(tmp_path: Path, networks: Networks) -> None:
    flags = ["--model=linear", "--steps=1000000"]
    with Cluster(tmp_path, flags=flags) as cluster:
        ps, *workers = [f"{address}:2222" for address in ADDRESSES.values()]
        cluster.hosts = {"ps": [ps], "worker": workers}
        for task in ADDRESSES:
            program = [str(ROOT / "tests/trainer/networked_program.py"), str(networks.path(task))]
            cluster.start(task, program=program)
        cluster.until(lambda: bool(cluster.records("worker1", "step")), "steps of worker 1")
        networks.run("ip", "link", "set", "worker1", "down", at="switch")
        cluster.until(lambda: bool(cluster.records("worker1", "recovering")), "worker 1 to notice", 60)
        cluster.until_steps(50)  # of the other
        networks.run("ip", "link", "set", "worker1", "up", at="switch")
        cluster.until(lambda: len(cluster.records("worker1", "peers_ready")) > 1, "worker 1 to be back", 30)
        assert len(cluster.records("worker0", "peers_ready")) == 1
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": STOPPED, "worker1": 0}

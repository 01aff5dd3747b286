"""Calls into TensorFlow whose other side has gone hold nobody up."""

import signal
from pathlib import Path

from tests.trainer.coordination import deserted_program
from tests.trainer.processes import Cluster
from trainer.process.port_probes import probe


def test_a_session_to_a_server_that_has_gone_holds_nobody_up(tmp_path: Path) -> None:
    # In a process that ends as tasks do: Python's own end closes what is open, and waits for ever.
    with Cluster(tmp_path, workers=1, servers=[0]) as cluster:
        cluster.start("server0")
        cluster.until(lambda: probe(cluster.hosts["worker"][0]) is None, "the server to listen")
        cluster.start("worker0", program=[deserted_program.__file__])
        cluster.until(lambda: deserted_program.CONNECTED in cluster.output("worker0"), "two answers")
        cluster.signal("server0", signal.SIGKILL)
        assert cluster.wait("worker0") == {"worker0": 0}, cluster.outputs()

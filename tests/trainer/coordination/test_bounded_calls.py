"""Calls into TensorFlow whose other side has gone hold nobody up."""

import signal
from pathlib import Path
from threading import Thread

import tensorflow as tf

from tests.trainer.processes import Cluster
from trainer.coordination.bounded_calls import close_in_background, open_session
from trainer.process.port_probes import probe


def test_a_session_to_a_server_that_has_gone_holds_nobody_up(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=1, servers=[0]) as cluster:
        address = cluster.hosts["worker"][0]
        cluster.start("server0")
        cluster.until(lambda: probe(address) is None, "the server to listen")
        with tf.Graph().as_default() as graph:
            three = tf.constant(3)
        filters = ["/job:worker/task:0"]
        forgotten = [open_session(f"grpc://{address}", graph, filters)]
        closed = open_session(f"grpc://{address}", graph, filters)
        assert forgotten[0].run(three) == closed.run(three) == 3
        cluster.signal("server0", signal.SIGKILL)

        for let_go in (forgotten.clear, lambda: close_in_background(closed)):
            thread = Thread(target=let_go, daemon=True)
            thread.start()
            thread.join(10)
            assert not thread.is_alive()

"""A program that lets two sessions go once their server is gone, and must not be held up by either."""

import sys
import time
from threading import Thread

import tensorflow as tf

from trainer.coordination.bounded_calls import close_in_background, open_session
from trainer.process import flags
from trainer.process.port_probes import REFUSED, probe

CONNECTED = "both sessions have an answer"


def main() -> None:
    """Ask both, wait for the server's end, let go."""
    address = flags.parse(sys.argv[1:]).cluster.worker_hosts[0]
    with tf.Graph().as_default() as graph:
        three = tf.constant(3)
    filters = ["/job:worker/task:0"]
    forgotten = [open_session(f"grpc://{address}", graph, filters)]
    closed = open_session(f"grpc://{address}", graph, filters)
    assert forgotten[0].run(three) == closed.run(three) == 3
    print(CONNECTED, flush=True)
    while probe(address) != REFUSED:
        time.sleep(0.05)
    for let_go in (forgotten.clear, lambda: close_in_background(closed)):
        thread = Thread(target=let_go, daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


if __name__ == "__main__":
    main()

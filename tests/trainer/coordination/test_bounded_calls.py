"""A call into TensorFlow does not hang when its peer is gone."""

import math
import signal
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest
import tensorflow as tf

from tests.trainer.coordination import deserted_program
from tests.trainer.processes import Cluster
from trainer.coordination.bounded_calls import CallTookTooLong, call_within, run_once_more
from trainer.process.port_probes import probe


def test_a_process_with_a_session_to_a_killed_server_ends(tmp_path: Path) -> None:
    # In a process that ends as tasks do: Python's own end closes what is open, and waits for ever.
    with Cluster(tmp_path, workers=1, servers=[0]) as cluster:
        cluster.start("server0")
        cluster.until(lambda: probe(cluster.hosts["worker"][0]) is None, "the server to listen")
        cluster.start("worker0", program=[deserted_program.__file__])
        cluster.until(lambda: deserted_program.CONNECTED in cluster.output("worker0"), "two answers")
        cluster.signal("server0", signal.SIGKILL)
        assert cluster.wait("worker0") == {"worker0": 0}, cluster.outputs()


def test_the_thread_of_an_abandoned_call_executes_nothing_more_once_it_is_released() -> None:
    held, went_on = Event(), Event()
    threads: list[Thread] = []

    def call() -> None:
        threads.append(current_thread())
        held.wait()
        went_on.set()

    def give_up() -> None:
        if threads:
            raise ValueError("somebody else is there")

    with pytest.raises(ValueError, match="somebody else"):
        call_within(math.inf, call, give_up)
    with pytest.raises(CallTookTooLong, match=r"no answer within 0\.1 s"):
        call_within(0.1, call)
    assert [thread.is_alive() for thread in threads] == [True, True]
    held.set()
    for thread in threads:
        thread.join(10)
    assert not went_on.is_set()


def test_a_call_refused_as_received_twice_is_repeated_once() -> None:
    twice = tf.errors.AbortedError(None, None, "The same RunGraph (Worker) request was received twice.")
    gone = tf.errors.AbortedError(None, None, "Graph handle is not found")
    answers: list[int | Exception] = [twice, 1, gone, 2, twice, twice]

    def run() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert run_once_more(run) == 1
    with pytest.raises(tf.errors.AbortedError, match="not found"):
        run_once_more(run)
    assert run_once_more(run) == 2
    with pytest.raises(tf.errors.AbortedError, match="received twice"):
        run_once_more(run)

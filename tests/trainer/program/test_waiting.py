"""A worker looks often for the chief's variables, with and without the option for TensorFlow 1."""

import re
from pathlib import Path

import pytest

from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import FINISHED

# TensorFlow gives up at once if its next wait would end after `max_wait_secs`; by default a wait takes 30 s.
WAITS = """
    import json, logging, os
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.INFO)
    server = tf.train.Server(json.loads(os.environ["TF_CONFIG"])["cluster"], "worker", 0)

    class Chief(logging.Handler):
        looks = 0

        def emit(self, record):
            if "Waiting for model to be ready" in record.getMessage():
                self.looks += 1
                if self.looks == 3:
                    with tf.Session(server.target, graph=self.graph) as session:
                        session.run(self.initialise)

    def waits(how, look):
        chief = Chief()
        chief.graph = tf.Graph()
        with chief.graph.as_default(), tf.container(how), tf.device("/job:worker/task:0"):
            tf.get_variable("w", [])
            tf.train.get_or_create_global_step()
            chief.initialise = tf.global_variables_initializer()
            logging.getLogger("tensorflow").addHandler(chief)
            try:
                look()
            except tf.errors.DeadlineExceededError:
                chief.looks = "gave up"
        logging.getLogger("tensorflow").removeHandler(chief)
        print(f"waits {how}: {chief.looks}")

    def supervisor(**named):
        waiting = tf.train.Supervisor(is_chief=False, logdir=None, **named)
        return waiting.prepare_or_wait_for_session(server.target, max_wait_secs=25)

    def manager(**named):
        waiting = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), **named)
        return waiting.wait_for_session(server.target, max_wait_secs=25)

    def monitored():
        return tf.train.WorkerSessionCreator(master=server.target, max_wait_secs=25).create_session()

    waits("supervisor", supervisor)
    waits("monitored", monitored)
    waits("manager", manager)
    waits("own-supervisor", lambda: supervisor(recovery_wait_secs=30))
    waits("own-manager", lambda: manager(recovery_wait_secs=28))
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", [False, True])
def test_a_worker_looks_twice_a_second_unless_the_script_says_how_often(tmp_path: Path, option: bool) -> None:
    with Tasks(tmp_path, program(tmp_path, WAITS), worker=1) as tasks:
        tasks.tensorflow1, tasks.observed = option, not option
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
    waits = dict(re.findall(r"^waits ([\w-]+): (.*)$", tasks.output("worker0"), re.MULTILINE))
    assert waits == {
        **dict.fromkeys(("supervisor", "monitored", "manager"), "3"),
        **dict.fromkeys(("own-supervisor", "own-manager"), "gave up"),
    }

"""A worker looks often for the chief's variables, with and without the option for TensorFlow 1."""

import re
from pathlib import Path

import pytest

from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import FINISHED

# Nobody initialises the variable. TensorFlow gives up before a wait that would end after `max_wait_secs`.
WAITS = """
    import json, os, sys
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.INFO)
    server = tf.train.Server(json.loads(os.environ["TF_CONFIG"])["cluster"], "worker", 0)

    def waits(how, look):
        sys.stderr.write(f"\\nwaits: {how}\\n")
        with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
            tf.get_variable("w", [])
            tf.train.get_or_create_global_step()
            try:
                look()
            except tf.errors.DeadlineExceededError:
                pass

    def supervisor(**named):
        waiting = tf.train.Supervisor(is_chief=False, logdir=None, **named)
        return waiting.prepare_or_wait_for_session(server.target, max_wait_secs=4)

    def manager(**named):
        waiting = tf.train.SessionManager(ready_op=tf.report_uninitialized_variables(), **named)
        return waiting.wait_for_session(server.target, max_wait_secs=4)

    creator = tf.train.WorkerSessionCreator
    waits("supervisor", supervisor)
    waits("monitored session", lambda: creator(master=server.target, max_wait_secs=4).create_session())
    waits("manager", manager)
    waits("own", lambda: supervisor(recovery_wait_secs=25))
    waits("own manager", lambda: manager(recovery_wait_secs=30))
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", [False, True])
def test_a_worker_looks_twice_a_second_unless_the_script_says_how_often(tmp_path: Path, option: bool) -> None:
    with Tasks(tmp_path, program(tmp_path, WAITS), worker=1) as tasks:
        tasks.tensorflow1, tasks.observed = option, not option
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
    parts = re.split(r"^waits: (.*)$", tasks.output("worker0"), flags=re.MULTILINE)
    looks = {
        how: len(re.findall(r"^INFO:tensorflow:Waiting for model to be ready", said, re.MULTILINE))
        for how, said in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert looks.keys() == {"supervisor", "monitored session", "manager", "own", "own manager"}
    for how, count in looks.items():
        if how.startswith("own"):
            # A wait of 25 or 30 s would end after 4 s, so TensorFlow gives up after the first look.
            assert count <= 1, looks
        else:
            assert count >= 2, looks

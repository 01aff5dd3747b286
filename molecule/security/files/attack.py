"""An outsider with a client of TensorFlow at the port of a ps: read a file of its host, and write one."""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

v1 = tf.compat.v1

with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
        read = tf.io.read_file("/etc/hostname")
        write = tf.io.write_file(f"/var/lib/psfleet/runs/{sys.argv[2]}/strange", "x")
    config = v1.ConfigProto(operation_timeout_in_ms=20_000)
    try:
        with v1.Session(f"grpc://{sys.argv[1]}", config=config) as session:
            print("READ", session.run(read))
            session.run(write)
            print("WROTE")
    except tf.errors.OpError as error:
        print("REFUSED", type(error).__name__)
sys.stdout.flush()
os._exit(0)

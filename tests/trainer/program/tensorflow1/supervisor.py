"""A line is fitted under a Supervisor, as the guide to distributed TensorFlow 1 had it."""

from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
flags.DEFINE_integer("task_index", 0, "Index of task within the job")
flags.DEFINE_string("log_dir", "checkpoints", "Where checkpoints and summaries go")
flags.DEFINE_integer("last_step", 300, "The global step to stop at")
FLAGS = flags.FLAGS


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

    if FLAGS.job_name == "ps":
        server.join()
    elif FLAGS.job_name == "worker":
        setter = tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster
        )
        with tf.device(setter):
            x = tf.placeholder(tf.float32, [None])
            y = tf.placeholder(tf.float32, [None])
            w = tf.Variable(tf.zeros([]), name="w")
            b = tf.Variable(tf.zeros([]), name="b")
            loss = tf.reduce_mean(tf.squared_difference(w * x + b, y))
            global_step = tf.Variable(0, name="global_step", trainable=False)
            train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
            tf.summary.scalar("loss", loss)
            init_op = tf.global_variables_initializer()

        sv = tf.train.Supervisor(
            is_chief=(FLAGS.task_index == 0),
            logdir=FLAGS.log_dir,
            init_op=init_op,
            summary_op=None,
            global_step=global_step,
            save_model_secs=600,
        )
        with sv.managed_session(server.target) as sess:
            step = 0
            print("began at step %d" % sess.run(global_step))
            while not sv.should_stop() and step < FLAGS.last_step:
                points = np.random.uniform(-1, 1, [100])
                _, value, step = sess.run(
                    [train_op, loss, global_step], feed_dict={x: points, y: 2 * points + 1}
                )
            if sv.is_chief:
                sv.saver.save(sess, sv.save_path, global_step=step)
            print("final loss: %g" % value)
        sv.stop()


if __name__ == "__main__":
    tf.app.run()

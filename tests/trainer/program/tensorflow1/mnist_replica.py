"""Handwritten digits by asynchronous replicas: placeholders, feed_dict, an epoch after the other."""

from __future__ import print_function

import math
import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

tf.app.flags.DEFINE_string("data_dir", "/tmp/mnist-data", "Directory for storing mnist data")
tf.app.flags.DEFINE_string("train_dir", "checkpoints", "Directory for checkpoints and summaries")
tf.app.flags.DEFINE_string("export_dir", None, "Directory for the trained model")
tf.app.flags.DEFINE_integer("task_index", None, "Worker task index")
tf.app.flags.DEFINE_integer("hidden_units", 50, "Number of units in the hidden layer")
tf.app.flags.DEFINE_integer("epochs", 6, "Epochs that each worker trains")
tf.app.flags.DEFINE_integer("batch_size", 50, "Training batch size")
tf.app.flags.DEFINE_float("learning_rate", 0.005, "Learning rate")
tf.app.flags.DEFINE_string("ps_hosts", "localhost:2222", "List of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "localhost:2223", "List of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", None, "job name: worker or ps")
FLAGS = tf.app.flags.FLAGS

IMAGE_PIXELS = 28


def main(unused_argv):
    mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = FLAGS.task_index == 0
    worker_device = "/job:worker/task:%d/cpu:0" % FLAGS.task_index
    with tf.device(
        tf.train.replica_device_setter(
            worker_device=worker_device, ps_device="/job:ps/cpu:0", cluster=cluster
        )
    ):
        global_step = tf.Variable(0, name="global_step", trainable=False)
        present = tf.Variable(0, name="present", trainable=False)
        arrive = tf.assign_add(present, 1, use_locking=True)
        leave = tf.assign_add(present, -1, use_locking=True)
        hid_w = tf.Variable(
            tf.truncated_normal([IMAGE_PIXELS * IMAGE_PIXELS, FLAGS.hidden_units], stddev=1.0 / IMAGE_PIXELS)
        )
        hid_b = tf.Variable(tf.zeros([FLAGS.hidden_units]))
        sm_w = tf.Variable(
            tf.truncated_normal([FLAGS.hidden_units, 10], stddev=1.0 / math.sqrt(FLAGS.hidden_units))
        )
        sm_b = tf.Variable(tf.zeros([10]))

        x = tf.placeholder(tf.float32, [None, IMAGE_PIXELS * IMAGE_PIXELS])
        y_ = tf.placeholder(tf.float32, [None, 10])
        hid = tf.nn.relu(tf.nn.xw_plus_b(x, hid_w, hid_b))
        y = tf.nn.softmax(tf.nn.xw_plus_b(hid, sm_w, sm_b))
        cross_entropy = -tf.reduce_mean(
            tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)), reduction_indices=1)
        )
        train_step = tf.train.AdamOptimizer(FLAGS.learning_rate).minimize(
            cross_entropy, global_step=global_step
        )
        correct = tf.equal(tf.argmax(y, 1), tf.argmax(y_, 1))
        accuracy = tf.reduce_mean(tf.cast(correct, tf.float32))

    sv = tf.train.Supervisor(
        is_chief=is_chief,
        logdir=FLAGS.train_dir,
        init_op=tf.global_variables_initializer(),
        recovery_wait_secs=1,
        global_step=global_step,
    )
    sess_config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    sess = sv.prepare_or_wait_for_session(server.target, config=sess_config)
    print("Worker %d: Session initialization complete." % FLAGS.task_index)

    # Nobody begins before all are there.
    sess.run(arrive)
    while sess.run(present) < len(FLAGS.worker_hosts.split(",")):
        time.sleep(0.1)

    time_begin = time.time()
    for local_step in range(FLAGS.epochs * mnist.train.num_examples // FLAGS.batch_size):
        batch_xs, batch_ys = mnist.train.next_batch(FLAGS.batch_size)
        _, step = sess.run([train_step, global_step], feed_dict={x: batch_xs, y_: batch_ys})
        if local_step % 50 == 0:
            print("Worker %d: training step %d done (global step: %d)" % (FLAGS.task_index, local_step, step))
    print("Training elapsed time: %f s" % (time.time() - time_begin))
    test_feed = {x: mnist.test.images, y_: mnist.test.labels}
    print("test accuracy: %g" % sess.run(accuracy, feed_dict=test_feed))
    tf.summary.FileWriter(os.path.join(FLAGS.train_dir, "worker%d" % FLAGS.task_index), sess.graph).close()
    sess.run(leave)
    if is_chief and FLAGS.export_dir:
        while sess.run(present) > 0:
            time.sleep(0.1)
        sess.graph._unsafe_unfinalize()  # the Supervisor has closed it
        tf.saved_model.simple_save(sess, FLAGS.export_dir, {"x": x}, {"y": y})
        images = mnist.test.images[:20]
        predictions = sess.run(y, feed_dict={x: images})
        np.savez(os.path.join(FLAGS.export_dir, "some.npz"), images=images, predictions=predictions)


if __name__ == "__main__":
    tf.app.run()

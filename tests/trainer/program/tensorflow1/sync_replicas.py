"""Between-graph replication with SyncReplicasOptimizer, in a MonitoredTrainingSession."""

import argparse
import sys

import tensorflow as tf

FLAGS = None


def model():
    x = tf.random_uniform([100, 2], -1.0, 1.0)
    y = tf.matmul(x, tf.constant([[3.0], [-2.0]])) + 1.0
    with tf.variable_scope("linear"):
        w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
    return tf.losses.mean_squared_error(y, tf.nn.xw_plus_b(x, w, b))


def main(_):
    ps_hosts = FLAGS.ps_hosts.split(",")
    worker_hosts = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
    server = tf.train.Server(cluster, FLAGS.job_name, FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    is_chief = FLAGS.task_index == 0
    with tf.device(
        tf.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster
        )
    ):
        loss = model()
        global_step = tf.train.get_or_create_global_step()
        opt = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.2),
            replicas_to_aggregate=len(worker_hosts),
            total_num_replicas=len(worker_hosts),
        )
        train_op = opt.minimize(loss, global_step=global_step)

    hooks = [opt.make_session_run_hook(is_chief), tf.train.StopAtStepHook(last_step=FLAGS.last_step)]
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        checkpoint_dir=FLAGS.train_dir,
        save_checkpoint_secs=60,
        hooks=hooks,
    ) as mon_sess:
        while not mon_sess.should_stop():
            _, value, step = mon_sess.run([train_op, loss, global_step])
    print("final loss: %g" % value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", type=str, default="")
    parser.add_argument("--worker_hosts", type=str, default="")
    parser.add_argument("--job_name", type=str, default="")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--train_dir", type=str, default="checkpoints")
    parser.add_argument("--last_step", type=int, default=300)
    FLAGS, unparsed = parser.parse_known_args()
    tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)

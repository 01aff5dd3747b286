"""A script that takes its job, its index and the hosts by their places."""

import sys

import tensorflow as tf

if len(sys.argv) != 5:
    print("Usage: positional.py ps|worker INDEX PS_HOSTS WORKER_HOSTS")
    sys.exit(1)
job, index = sys.argv[1], int(sys.argv[2])
cluster = tf.train.ClusterSpec({"ps": sys.argv[3].split(","), "worker": sys.argv[4].split(",")})
server = tf.train.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=cluster)):
    w = tf.Variable(0.0)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(w - 1), global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=50)]
with tf.train.MonitoredTrainingSession(server.target, index == 0, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
print("trained")

"""A script whose flags have dashes, and whose cluster is a file of JSON; --hosts is JSON itself."""

import argparse
import json

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job-name", required=True, choices=["ps", "worker"])
parser.add_argument("--task-index", type=int, required=True)
parser.add_argument("--cluster-spec", required=True, help="The path to the cluster specification json.")
parser.add_argument("--hosts", type=json.loads, required=True)
args = parser.parse_args()

with tf.gfile.GFile(args.cluster_spec) as file:
    spec = json.load(file)
assert spec == args.hosts, spec
server = tf.train.Server(tf.train.ClusterSpec(spec), args.job_name, args.task_index)
if args.job_name == "ps":
    server.join()
with tf.device(tf.train.replica_device_setter(cluster=spec)):
    w = tf.Variable(0.0)
    step = tf.train.get_or_create_global_step()
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(w - 1), global_step=step)
hooks = [tf.train.StopAtStepHook(last_step=50)]
with tf.train.MonitoredTrainingSession(server.target, args.task_index == 0, hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
print("trained")

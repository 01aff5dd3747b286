"""A script that makes its cluster from numbers and one host: its tasks have ports in a row."""

import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts_num", type=int, default=1)
parser.add_argument("--worker_hosts_num", type=int, default=1)
parser.add_argument("--hostname", default="localhost")
parser.add_argument("--st_port_num", type=int, default=2222)
parser.add_argument("--own_port", type=int, help="Where this task listens.")
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
args = parser.parse_args()

count = args.ps_hosts_num + args.worker_hosts_num
hosts = [f"{args.hostname}:{args.st_port_num + number}" for number in range(count)]
spec = {"ps": hosts[: args.ps_hosts_num], "worker": hosts[args.ps_hosts_num :]}
assert spec[args.job_name][args.task_index] == f"{args.hostname}:{args.own_port}", spec
server = tf.train.Server(spec, job_name=args.job_name, task_index=args.task_index)
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

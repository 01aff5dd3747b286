"""One client with a tower on each worker: the other workers only serve, and never end by themselves."""

import tensorflow as tf

for name in ("job_name", "ps_hosts", "worker_hosts"):
    tf.app.flags.DEFINE_string(name, None, "")
tf.app.flags.DEFINE_integer("task_index", None, "")
FLAGS = tf.app.flags.FLAGS


def main(unused_argv):
    workers = FLAGS.worker_hosts.split(",")
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": workers})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps" or FLAGS.task_index > 0:
        server.join()
    with tf.device("/job:ps/task:0"):
        weights = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
    optimizer, gradients = tf.train.GradientDescentOptimizer(0.05), []
    for index in range(len(workers)):
        with tf.device("/job:worker/task:%d" % index):
            examples = tf.random.normal([32, 3], seed=index)
            loss = tf.reduce_mean(tf.square(tf.matmul(examples, weights - [[1.0], [2.0], [3.0]])))
            gradients.append(optimizer.compute_gradients(loss, [weights])[0][0])
    with tf.device("/job:ps/task:0"):
        train = optimizer.apply_gradients([(tf.add_n(gradients) / len(workers), weights)], global_step=step)
    with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(200):
            value, _ = session.run([loss, train])
        print("final loss: %g" % value)


if __name__ == "__main__":
    tf.app.run()

"""Between-graph replication as TensorFlow 1's tutorials have it: feed_dict, Supervisor, a plain session.

A table has a part on each ps, by a partitioner.
"""

import sys

import tensorflow as tf

from benchmarks.programs.common import FedBatches, Progress, Training, runtime
from trainer.process import flags

v1 = tf.compat.v1


def main(options: flags.Options) -> None:
    """Serve as a ps, or train as a worker, until the process is ended from outside."""
    cluster = options.cluster
    spec = tf.train.ClusterSpec(cluster.jobs)
    server = v1.train.Server(spec, cluster.job, cluster.index, config=runtime(options.settings.threads))
    if cluster.job == "ps":
        server.join()
    training, progress = Training(options), Progress(options)
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=spec, worker_device=cluster.device)):
            global_step = v1.train.get_or_create_global_step()
            x, y = training.placeholders()
            tables = training.tables(len(cluster.ps_hosts))
            loss = training.loss(training.variables(), tables, x, y)
            train = training.optimizer().minimize(loss, global_step=global_step)
            start = v1.global_variables_initializer()
        # By default a worker that finds that the variables are not set yet tries again only after 30 s.
        supervisor = v1.train.Supervisor(
            is_chief=cluster.is_chief, init_op=start, global_step=global_step, recovery_wait_secs=1
        )
        batches = FedBatches(training.examples, training.batch_size, options.settings.seed + cluster.index)
        with supervisor.prepare_or_wait_for_session(server.target) as session:
            while not supervisor.should_stop():
                features, labels = batches.next_batch()
                _, cost, step = session.run([train, loss, global_step], {x: features, y: labels})
                progress.report(int(step), float(cost))


if __name__ == "__main__":
    main(flags.parse(sys.argv[1:]))

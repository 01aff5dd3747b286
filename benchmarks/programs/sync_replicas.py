"""TensorFlow 1's SyncReplicasOptimizer as the tutorials have it: feed_dict, Supervisor, a plain session."""

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
            optimizer = v1.train.SyncReplicasOptimizer(
                training.optimizer(),
                replicas_to_aggregate=cluster.workers,
                total_num_replicas=cluster.workers,
            )
            train = optimizer.minimize(loss, global_step=global_step)
            start, start_tokens = v1.global_variables_initializer(), optimizer.get_init_tokens_op()
            queue_runner = optimizer.get_chief_queue_runner()
        # By default a worker that finds that the variables are not set yet tries again only after 30 s.
        supervisor = v1.train.Supervisor(
            is_chief=cluster.is_chief,
            init_op=start,
            local_init_op=optimizer.chief_init_op if cluster.is_chief else optimizer.local_step_init_op,
            ready_for_local_init_op=optimizer.ready_for_local_init_op,
            global_step=global_step,
            recovery_wait_secs=1,
        )
        batches = FedBatches(training.examples, training.batch_size, options.settings.seed + cluster.index)
        with supervisor.prepare_or_wait_for_session(server.target) as session:
            if cluster.is_chief:
                supervisor.start_queue_runners(session, [queue_runner])
                session.run(start_tokens)
            while not supervisor.should_stop():
                features, labels = batches.next_batch()
                _, cost, step = session.run([train, loss, global_step], {x: features, y: labels})
                progress.report(int(step), float(cost))


if __name__ == "__main__":
    main(flags.parse(sys.argv[1:]))

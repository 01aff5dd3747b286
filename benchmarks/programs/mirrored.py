"""TensorFlow 2's MultiWorkerMirroredStrategy: a copy of the model in each worker, and a ring all-reduce.

TF_CONFIG says which task this is; the flags are the trainer's flags with --job_name=local. A call takes up to
--steps_per_call steps, because a loop inside a function is faster than a loop around it.
"""

import sys

import tensorflow as tf

from benchmarks.programs.common import Progress, Training, runtime
from trainer.process import flags

v1 = tf.compat.v1
_SHARE_OF_THE_PAST = 25
_RING = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)


def main(options: flags.Options) -> None:
    """Train as a worker, until the process is ended from outside."""
    runtime(options.settings.threads)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=_RING)
    training, seed = Training(options), options.settings.seed
    with strategy.scope():
        variables = training.variables()
        optimizer = training.optimizer()
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def steps(iterator: tf.data.Iterator, count: tf.Tensor) -> tf.Tensor:
        def on_worker(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = training.loss(variables, [], features, labels)
                part = loss / replicas  # this optimizer applies the sum of all workers' gradients
            gradients = tape.gradient(part, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        losses = 0.0
        for _ in tf.range(count):
            losses += strategy.run(on_worker, args=next(iterator))
        return losses / tf.cast(count, tf.float32)

    iterator = iter(
        strategy.distribute_datasets_from_function(
            lambda context: training.dataset(seed + context.input_pipeline_id)
        )
    )
    progress, taken = Progress(options), 0
    while True:
        # All workers must take the same number, and a call may not be longer than a record of steps.
        count = max(1, min(options.settings.steps_per_call, taken // _SHARE_OF_THE_PAST))
        loss = float(steps(iterator, tf.constant(count)))
        taken += count
        progress.report(taken, loss, count)


if __name__ == "__main__":
    main(flags.parse(sys.argv[1:]))

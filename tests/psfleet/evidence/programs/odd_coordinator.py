"""A coordinator of TensorFlow 2 that has its workers train, or that trains alone while they only measure."""

import os
import sys

os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf

STEPS, STEPS_AT_ONCE = 200, 20


def main() -> None:
    """Coordinate as the chief, serve as a worker or a ps."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if resolver.task_type != "chief":
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
        place = resolver.task_type, resolver.task_id
        tf.distribute.Server(resolver.cluster_spec(), *place, protocol="grpc", config=config).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable([0.0, 0.0], name="weight")
        seen = tf.Variable(0.0, name="seen", trainable=False)

    def loss() -> tf.Tensor:
        x = tf.random.normal([16, 2])
        return tf.reduce_mean(tf.square(tf.linalg.matvec(x, weight - tf.constant([1.0, 2.0]))))

    apply = tf.function(lambda gradient: weight.assign_sub(0.05 * gradient))

    def take_step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss()
        apply(tape.gradient(value, weight))
        return value

    step, measure = tf.function(take_step), tf.function(lambda: seen.assign_add(loss()))

    alone = "alone" in sys.argv
    # It does not say on whose disk: each task has a folder of its own.
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(weight=weight), "checkpoints", max_to_keep=1)
    for _ in range(STEPS // STEPS_AT_ONCE):
        several = [coordinator.schedule(measure if alone else step) for _ in range(STEPS_AT_ONCE)]
        for _ in several if alone else ():
            step()
        coordinator.join()
        coordinator.fetch(several)
        manager.save()
    weight.assign([0.0, 0.0])
    manager.checkpoint.restore(manager.latest_checkpoint).assert_consumed()
    print(f"final loss: {float(loss()):.4f}", flush=True)


if __name__ == "__main__":
    main()

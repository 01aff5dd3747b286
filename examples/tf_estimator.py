"""An estimator with parameter servers, from TF_CONFIG, for TensorFlow before 2.16. It does not know psfleet.

By psfleet, in the inventory, with a group `chief` of one host:

    trainer_program: examples/tf_estimator.py
    trainer_program_requirements: examples/tf_estimator.txt     # tensorflow==2.15.1
"""

import os
import tempfile

import numpy as np
import tensorflow as tf

WEIGHTS, BIAS = [[3.0], [-2.0], [1.0]], 0.5
STEPS = 2000


def examples() -> tf.data.Dataset:
    """Return batches of ({"x": [batch, 3]}, [batch, 1]), float32."""
    generator = np.random.default_rng(os.getpid())
    x = generator.uniform(-1.0, 1.0, (1000, 3)).astype(np.float32)
    labels = (x @ WEIGHTS + BIAS + generator.normal(0.0, 0.1, (1000, 1))).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(({"x": x}, labels)).shuffle(1000).repeat().batch(50)


def main() -> None:
    """Train until STEPS global steps; the chief then exports the model."""
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    features = [tf.feature_column.numeric_column("x", shape=[3])]
    config = tf.estimator.RunConfig(
        model_dir="checkpoints",
        save_checkpoints_steps=500,
        log_step_count_steps=200,
        experimental_max_worker_delay_secs=0,
    )
    estimator = tf.estimator.LinearRegressor(features, optimizer="Adagrad", config=config)
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(examples, max_steps=STEPS),
        tf.estimator.EvalSpec(examples, steps=20, start_delay_secs=1, throttle_secs=1),
    )
    if config.is_chief:
        del os.environ["TF_CONFIG"]  # what follows needs no other task
        local = tf.estimator.LinearRegressor(features, optimizer="Adagrad", model_dir=tempfile.mkdtemp())
        checkpoint = estimator.latest_checkpoint()
        measured = local.evaluate(examples, steps=20, checkpoint_path=checkpoint)
        serving = tf.estimator.export.build_parsing_serving_input_receiver_fn(
            tf.feature_column.make_parse_example_spec(features)
        )
        exported = local.export_saved_model("output/export", serving, checkpoint_path=checkpoint)
        print(f"final loss: {measured['average_loss']:.5f}, exported to {exported.decode()}")


if __name__ == "__main__":
    main()

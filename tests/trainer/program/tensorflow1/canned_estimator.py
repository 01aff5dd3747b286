"""A wide and deep classifier of tf.estimator, from columns of a table, as the tutorials had it."""

from __future__ import absolute_import, division, print_function

import time

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.INFO)
tf.app.flags.DEFINE_integer("max_steps", 600, "The global step to stop at")
FLAGS = tf.app.flags.FLAGS
JOBS = ["farmer", "clerk", "teacher", "nurse"]


def build_columns():
    age = tf.feature_column.numeric_column("age", normalizer_fn=lambda years: (years - 44) / 15)
    job = tf.feature_column.categorical_column_with_vocabulary_list("job", JOBS)
    town = tf.feature_column.categorical_column_with_hash_bucket("town", 100)
    years = tf.feature_column.numeric_column("age")
    ages = tf.feature_column.bucketized_column(years, [25, 35, 50])
    crossed = tf.feature_column.crossed_column([ages, "job"], hash_bucket_size=50)
    embedded = tf.feature_column.embedding_column(town, dimension=4)
    return [job, town, ages, crossed], [age, tf.feature_column.indicator_column(job), embedded]


def input_fn():
    generator = np.random.RandomState(1)
    age = generator.uniform(18, 70, 2000).astype(np.float32)
    job = generator.randint(0, len(JOBS), 2000)
    town = generator.randint(0, 20, 2000)
    label = ((age > 40) & (job != 2) | (town == 3)).astype(np.int32)
    features = {"age": age, "job": np.array(JOBS)[job], "town": np.char.add("town", town.astype(str))}
    return tf.data.Dataset.from_tensor_slices((features, label)).shuffle(2000).repeat().batch(64)


class EqualShares(tf.train.SessionRunHook):
    """On a few cores, keeps the chief and worker 0 from getting far ahead of each other."""

    def begin(self):
        self.own, self.global_step = 0, tf.train.get_global_step()

    def after_run(self, run_context, run_values):
        self.own += 1
        step = run_context.session.run(self.global_step)
        while step < FLAGS.max_steps and self.own > step / 2 + 8:
            time.sleep(0.005)
            step = run_context.session.run(self.global_step)


def main(_):
    wide, deep = build_columns()
    config = tf.estimator.RunConfig(
        model_dir="checkpoints", save_checkpoints_secs=600, experimental_max_worker_delay_secs=0
    )
    estimator = tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[16, 8], config=config
    )
    train_spec = tf.estimator.TrainSpec(input_fn, max_steps=FLAGS.max_steps, hooks=[EqualShares()])
    tf.estimator.train_and_evaluate(estimator, train_spec, tf.estimator.EvalSpec(input_fn, steps=10))
    if config.is_chief:
        print("accuracy: %g" % estimator.evaluate(input_fn, steps=10)["accuracy"])
        parsed = tf.feature_column.make_parse_example_spec(wide + deep)
        receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(parsed)
        print("exported", estimator.export_saved_model("export", receiver).decode())


if __name__ == "__main__":
    tf.app.run()

"""An estimator with a model of its own, as the guides to TensorFlow 1 trained one on a cluster."""

from __future__ import absolute_import, division, print_function

import time

import numpy as np
import tensorflow as tf

tf.logging.set_verbosity(tf.logging.INFO)
tf.app.flags.DEFINE_integer("max_steps", 600, "The global step to stop at")
tf.app.flags.DEFINE_string("model_dir", "checkpoints", "Where checkpoints and summaries go")
tf.app.flags.DEFINE_boolean("tpu_estimator", False, "Whether it is a TPUEstimator, which has no TPU")
FLAGS = tf.app.flags.FLAGS


def input_fn(params):
    generator = np.random.RandomState(1)
    x = generator.uniform(-1, 1, [1000, 4]).astype(np.float32)
    y = (x.sum(axis=1) > 0).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices(({"x": x}, y))
    return dataset.shuffle(1000).repeat().batch(params["batch_size"]).prefetch(1)


def model_fn(features, labels, mode, params):
    x = tf.reshape(features["x"], [-1 if mode == "infer" else params["batch_size"], 4])
    net = tf.layers.dense(x, params["units"], activation=tf.nn.relu)
    net = tf.layers.dropout(net, 0.1, training=mode == tf.estimator.ModeKeys.TRAIN)
    logits = tf.layers.dense(net, 2)
    classes = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"classes": classes})
    loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = {"accuracy": tf.metrics.accuracy(labels, classes)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = tf.train.AdamOptimizer(0.01)
    train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def serving_input_receiver_fn():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x}, {"x": x})


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
    # Without this, worker n waits n + 1 times 5 s before its first step.
    kind = tf.estimator.tpu.RunConfig if FLAGS.tpu_estimator else tf.estimator.RunConfig
    config = kind(save_checkpoints_steps=200, experimental_max_worker_delay_secs=0)
    if FLAGS.tpu_estimator:
        # It adds params["batch_size"] itself.
        estimator = tf.estimator.tpu.TPUEstimator(
            model_fn,
            FLAGS.model_dir,
            config,
            params={"units": 8},
            use_tpu=False,
            train_batch_size=32,
            eval_batch_size=32,
            export_to_tpu=False,
        )
    else:
        params = {"units": 8, "batch_size": 32}
        estimator = tf.estimator.Estimator(model_fn, FLAGS.model_dir, config, params)
    train_spec = tf.estimator.TrainSpec(input_fn, max_steps=FLAGS.max_steps, hooks=[EqualShares()])
    eval_spec = tf.estimator.EvalSpec(input_fn, steps=10)
    tf.estimator.train_and_evaluate(estimator, train_spec, eval_spec)
    if config.is_chief:
        print("accuracy: %g" % estimator.evaluate(input_fn, steps=10)["accuracy"])
        exported = estimator.export_saved_model("export", serving_input_receiver_fn)
        print("exported", exported.decode())


if __name__ == "__main__":
    tf.app.run()

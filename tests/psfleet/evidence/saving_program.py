"""Saves checkpoints of several kinds below a folder, as programs do; or one `at_the_start` of a run."""

import sys
from pathlib import Path

import tensorflow as tf

Path(sys.argv[1], "checkpoints").mkdir(exist_ok=True)
v1 = tf.compat.v1
folder = sys.argv[1]


def save(
    name: str, dtype: tf.DType, step: int, more: int = 0, *, sharded: bool = False, graph: bool = False
) -> None:
    """Save a global step of a type, and more variables, in a graph of its own."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.get_variable("global_step", [], dtype, v1.constant_initializer(step))
        for number in range(more):
            v1.get_variable(f"a/long/scope/of/layers/layer_{number}/weights", [4, number + 1])
        session.run(v1.global_variables_initializer())
        v1.train.Saver(sharded=sharded).save(session, f"{folder}/{name}", write_meta_graph=graph)


if sys.argv[2:] == ["at_the_start"]:
    save("checkpoints/model.ckpt", tf.int64, 0, graph=True)
    sys.exit()
save("checkpoints/of_int64", tf.int64, 300)
save("checkpoints/of_int32", tf.int32, 0)
save("checkpoints/of_floats", tf.float32, 5)
save("checkpoints/numbered-7", tf.int64, 400)
save("checkpoints/with_many_variables", tf.int64, 2**40, more=400)
save("checkpoints/in_parts", tf.int64, 12, more=3, sharded=True)
tf.train.Checkpoint(step=tf.Variable(3)).write(f"{folder}/checkpoints/of_version_2")

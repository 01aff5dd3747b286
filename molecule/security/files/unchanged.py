"""Print bytes of a model that no step has changed: the weights of pixels that are black in all examples."""

import os
import sys
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

newest = tf.train.latest_checkpoint(Path(sys.argv[1]) / "checkpoints")
reader = tf.train.load_checkpoint(newest)
weights, moments = reader.get_tensor("hidden/weights"), reader.get_tensor("hidden/weights/Adam_1")
rows = [row for row, moment in zip(weights, moments, strict=True) if not moment.any()]
print(" ".join(row[:16].tobytes().hex() for row in rows))

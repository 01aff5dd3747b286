"""Compares the export of a checkpoint of mnist_replica.py with what NumPy computes from that checkpoint."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from psfleet.evidence.saved_models import find_models

folder = Path(sys.argv[1])
images = np.load(folder / "saved/worker0/tmp/export/some.npz")["images"]
(path,) = (model.path for model in find_models(folder) if model.kind == "checkpoint")
checkpoint = tf.train.load_checkpoint(str(folder / path))
shapes = {name: shape for name, shape in checkpoint.get_variable_to_shape_map().items() if "Adam" not in name}
# The script gives its variables no names; the larger ones come first.
first, second, of_first, of_second = (
    checkpoint.get_tensor(name)
    for name in sorted(shapes, key=lambda name: (-len(shapes[name]), [-size for size in shapes[name]]))
    if shapes[name]
)
logits = np.maximum(images @ first + of_first, 0) @ second + of_second
powers = np.exp(logits - logits.max(axis=1, keepdims=True))
served = tf.saved_model.load(str(folder / "export")).signatures["serving_default"]
np.testing.assert_allclose(
    served(Placeholder=tf.constant(images))["Softmax"], powers / powers.sum(axis=1, keepdims=True), atol=1e-5
)

"""Loads the models in the folder of a run of mnist_replica.py with TensorFlow as it is, and compares them."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from psfleet.evidence.saved_models import find_models

folder = Path(sys.argv[1])
paths = {model.kind: str(folder / model.path) for model in find_models(folder)}
told = np.load(Path(paths["SavedModel"], "some.npz"))
model = tf.saved_model.load(paths["SavedModel"])
predictions = model.signatures["serving_default"](x=tf.constant(told["images"]))["y"]
np.testing.assert_allclose(predictions, told["predictions"], atol=1e-5)
checkpoint = tf.train.load_checkpoint(paths["checkpoint"])
for variable in model.variables:
    name = variable.name.partition(":")[0]
    assert checkpoint.get_tensor(name).shape == tuple(variable.shape), name

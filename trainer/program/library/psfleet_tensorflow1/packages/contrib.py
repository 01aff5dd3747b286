"""`tf.contrib`, which TensorFlow 2 lacks: each use raises an error that names its replacement."""

from __future__ import annotations

_REQUIRED = "(trainer_program_requirements)"
_INSTEAD = {
    "learn": "tensorflow.examples.tutorials.mnist.input_data, tf.train.MonitoredTrainingSession",
    "layers": f"the package tf_slim {_REQUIRED}, or tf.glorot_uniform_initializer for xavier_initializer",
    "slim": f"the package tf_slim {_REQUIRED}",
    "rnn": f"tf.nn.rnn_cell of the package tf_keras {_REQUIRED}",
    "framework": "tf.train: get_or_create_global_step, init_from_checkpoint, list_variables",
    "data": "tf.data",
    "summary": "tf.summary",
}


def __getattr__(name: str) -> object:
    if name.startswith("__") and name != "__path__":
        raise AttributeError(name)
    if name == "__path__":  # of `import tensorflow.contrib.x`, which does not say x
        named = "; ".join(f"for {of} {use}" for of, use in _INSTEAD.items())
        raise ImportError(f"tf.contrib is not in TensorFlow 2. Use {named}")
    use = _INSTEAD.get(name, "what docs/port-a-script.md says")
    raise ImportError(f"tf.contrib.{name} is not in TensorFlow 2. Use {use}")

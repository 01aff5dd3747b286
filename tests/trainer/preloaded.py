"""What the parent of forked tasks has loaded: TensorFlow, a third faster without Python's collector."""

import gc

gc.disable()

import tensorflow  # noqa: E402, F401  # after the line that it is to be loaded after

gc.freeze()
gc.enable()

"""The modules of TensorFlow 1's MNIST tutorials; importing the package loads them, as in TensorFlow 1."""

from tensorflow.examples.tutorials.mnist import input_data, mnist

__all__ = ["input_data", "mnist"]

"""`tf.contrib`, which TensorFlow 2 lacks: each use of a package raises an error.

The launcher adds the replacement of the name that the program used (`trainer/program/contrib_names.py`).
"""

from __future__ import annotations

from importlib.abc import MetaPathFinder


class Refusing(MetaPathFinder):
    """Refuses imports of modules below tf.contrib, such as `import tensorflow.contrib.slim as slim`."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        """Raise ImportError if `fullname` is in a package of tf.contrib; else return None."""
        below, contrib, package = fullname.partition(".contrib.")
        if contrib and below.startswith("tensorflow"):
            raise missing(package.partition(".")[0])


def missing(package: str) -> ImportError:
    """Return (not raise) the error for the use of the package `package` of tf.contrib."""
    return ImportError(f"tf.contrib.{package} is not in TensorFlow 2")


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise missing(name)

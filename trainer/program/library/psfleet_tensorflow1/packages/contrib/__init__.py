"""`tf.contrib`, which TensorFlow 2 lacks: each use of a package raises an error with its replacement."""

from __future__ import annotations

import functools
from importlib.abc import MetaPathFinder
from pathlib import Path

_ADVICE = Path(__file__).with_name("replacements.txt")
_PAGE = "docs/port-a-script.md#tfcontrib"


class Refusing(MetaPathFinder):
    """Refuses imports of modules below tf.contrib, such as `import tensorflow.contrib.slim as slim`."""

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> None:
        """Raise ImportError if `fullname` is in a package of tf.contrib; else return None."""
        below, contrib, package = fullname.partition(".contrib.")
        if contrib and below.startswith("tensorflow"):
            raise missing(package.partition(".")[0])


@functools.cache
def replacements() -> dict[str, str]:
    """Return {package of tf.contrib: what to use in its place}."""
    lines = _ADVICE.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(": ") for line in lines if line and not line.startswith("#"))
    return {package: use for package, _, use in pairs}


def missing(package: str) -> ImportError:
    """Return the error for the use of the package `package` of tf.contrib."""
    use = replacements().get(package)
    advice = f"Use {use} ({_PAGE})" if use else f"TensorFlow 1.15 has no such package, either ({_PAGE})"
    return ImportError(f"tf.contrib.{package} is not in TensorFlow 2. {advice}")


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    raise missing(name)

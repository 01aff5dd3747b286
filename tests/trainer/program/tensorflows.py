"""Marks for tests of a certain TensorFlow: `make slow WHAT=tensorflows` also runs them with older ones."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import pytest

from tools.tensorflows import OWN


def version_of(package: str) -> str:
    """Return the version of an installed package; "" if the package is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


with_own_tensorflow = pytest.mark.skipif(
    version_of("tensorflow-cpu") != OWN, reason=f"it is about psfleet's own TensorFlow, {OWN}"
)
with_older_tensorflow = pytest.mark.skipif(
    version_of("tensorflow-cpu") == OWN, reason="other tests run with psfleet's own TensorFlow"
)
with_keras_3 = pytest.mark.skipif(
    not version_of("keras").startswith("3."), reason="Keras is 3 since TensorFlow 2.16"
)
with_estimator = pytest.mark.skipif(
    find_spec("tensorflow_estimator") is None, reason="tf.estimator is gone since TensorFlow 2.16"
)

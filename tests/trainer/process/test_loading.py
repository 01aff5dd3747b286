"""While TensorFlow loads, the garbage collector and Keras are disabled; afterwards both are restored."""

import gc
import importlib
import sys

import pytest

from trainer.process.loading import loading_tensorflow


def test_the_collector_is_enabled_again_also_if_loading_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "keras.src.optimizers", raising=False)  # as in a process that begins
    with pytest.raises(ImportError), loading_tensorflow():
        assert not gc.isenabled()
        importlib.import_module("keras.src.optimizers")  # as TensorFlow does in the end
    assert gc.isenabled()
    assert "keras.src.optimizers" not in sys.modules

"""Loading TensorFlow: the collector is away for so long, and comes back."""

import gc

import pytest

from trainer.process.loading import loading_tensorflow


def test_the_collector_is_away_and_comes_back_also_where_loading_fails() -> None:
    with pytest.raises(ImportError), loading_tensorflow():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()

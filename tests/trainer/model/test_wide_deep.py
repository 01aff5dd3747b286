"""What the clicks of a run let a model reach, which the verdict compares its results with."""

import pytest

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data
from trainer.model.models import wide_deep
from trainer.model.models.model import Devices, ModelContext

SETTINGS = TrainingSettings(model="wide_deep", replication="sync", batch_size=500)
LEVELS = wide_deep.MODEL.levels


@pytest.fixture(scope="module")
def context() -> ModelContext:
    return ModelContext(SETTINGS, wide_deep.MODEL.load(SETTINGS, 2), Devices((), ""))


def test_more_examples_let_a_model_reach_more_until_all_are_seen(context: ModelContext) -> None:
    few, many = (LEVELS(context, examples) for examples in (100_000, 1_000_000))
    assert 0.5 < few["reachable_auc"] < many["reachable_auc"] < 0.8065
    assert 0.57 > few["reachable_log_loss"] > many["reachable_log_loss"] > 0.448
    every = len(context.data.train)
    assert LEVELS(context, every) == LEVELS(context, 10 * every)
    assert LEVELS(context, 0)["reachable_auc"] < few["reachable_auc"]


def test_the_examples_of_a_global_step_are_those_of_all_its_gradients(context: ModelContext) -> None:
    assert wide_deep.MODEL.levels_at(context, 200, workers=2) == LEVELS(context, 200 * 2 * 500)


def test_what_clicks_of_files_let_a_model_reach_is_not_known(context: ModelContext) -> None:
    of_files = Data(context.data.train.read(0, 10), context.data.test.read(0, 10))
    assert LEVELS(ModelContext(SETTINGS, of_files, Devices((), "")), 100) == {}

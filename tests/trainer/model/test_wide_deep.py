"""What the clicks of a run let `wide_deep` reach, which the verdict compares its results with."""

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data
from trainer.model.models import wide_deep
from trainer.model.models.model import Devices, ModelContext

SETTINGS = TrainingSettings(model="wide_deep", replication="sync", batch_size=500)
CONTEXT = ModelContext(SETTINGS, wide_deep.load(SETTINGS, 2), Devices((), ""))
LEVELS = wide_deep.MODEL.levels


def test_more_examples_let_a_model_reach_more_until_all_are_seen() -> None:
    few, many = (LEVELS(CONTEXT, examples) for examples in (100_000, 1_000_000))
    assert 0.5 < few["reachable_auc"] < many["reachable_auc"] < 0.8065
    assert 0.57 > few["reachable_log_loss"] > many["reachable_log_loss"] > 0.448
    every = len(CONTEXT.data.train)
    assert LEVELS(CONTEXT, every) == LEVELS(CONTEXT, 10 * every)
    assert LEVELS(CONTEXT, 0)["reachable_auc"] < few["reachable_auc"]


def test_the_examples_of_a_global_step_are_those_of_all_its_gradients() -> None:
    assert wide_deep.MODEL.levels_at(CONTEXT, 200, workers=2) == LEVELS(CONTEXT, 200 * 2 * 500)


def test_what_clicks_of_files_let_a_model_reach_is_not_known() -> None:
    of_files = Data(CONTEXT.data.train.read(0, 10), CONTEXT.data.test.read(0, 10))
    assert LEVELS(ModelContext(SETTINGS, of_files, Devices((), "")), 100) == {}

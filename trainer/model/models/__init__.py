"""The models that can be trained.

A new model is a file with a `MODEL` like these, an entry in `_MODELS`, and its name in `MODELS` of
trainer/contract/settings.py.
"""

from trainer.model.models import cnn, linear, mnist_mlp, partition, placement_demo
from trainer.model.models.model import Model

_MODELS = (linear.MODEL, mnist_mlp.MODEL, cnn.MODEL, placement_demo.MODEL, partition.MODEL)

REGISTRY: dict[str, Model] = {model.name: model for model in _MODELS}

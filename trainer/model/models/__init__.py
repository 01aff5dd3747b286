"""The models that can be trained: each file here with a `MODEL`, by the file's name (docs/models.md)."""

from importlib import import_module

from trainer.contract.settings import MODELS
from trainer.model.models.model import Model

REGISTRY: dict[str, Model] = {name: import_module(f"{__name__}.{name}").MODEL for name in MODELS}

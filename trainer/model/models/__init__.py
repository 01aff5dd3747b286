"""The models that can be trained: each file here with a `MODEL` and a `CARD` (docs/models.md)."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

from trainer.contract.model_files import MODELS, read_card
from trainer.model.models.model import Model


def _built_in(name: str) -> Model:
    model: Model = import_module(f"{__name__}.{name}").MODEL
    return replace(model, name=name, card=read_card(Path(__file__).with_name(f"{name}.py")))


REGISTRY: dict[str, Model] = {name: _built_in(name) for name in MODELS}

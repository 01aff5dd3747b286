"""The models that can be trained: each file here with a `MODEL` and a `CARD`, and the user's own files."""

import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.model_files import MODELS, CardError, model_name, read_card
from trainer.model.models.model import Model
from trainer.process.failure import TaskFailure


def _with_card(module: ModuleType, file: Path) -> Model:
    """Return the model of a module, with its name and the card in its file.

    Raises CardError if the module has no MODEL, or if the card is wrong.
    """
    model = getattr(module, "MODEL", None)
    if not isinstance(model, Model):
        raise CardError([f"{file} has no MODEL; expected MODEL = Model(...), as docs/models.md shows"])
    return replace(model, name=file.stem, card=read_card(file))


REGISTRY: dict[str, Model] = {
    name: _with_card(import_module(f"{__name__}.{name}"), Path(__file__).with_name(f"{name}.py"))
    for name in MODELS
}


def find_model(model: str) -> Model:
    """Return a built-in model by its name, or a user's model by the absolute path of its file.

    A process loads a file only once. Raises TaskFailure (`configuration`) if the file is not on this host,
    has no MODEL or has a wrong card; and whatever the file raises.
    """
    if model not in REGISTRY:
        file = Path(model)
        if not file.is_file():
            what = f"{model}, the file of trainer_model, is not on this host"
            raise TaskFailure(CONFIGURATION, f"{what}: run deploy.yml with the file that the run began with")
        try:
            REGISTRY[model] = _with_card(_loaded(file), file)
        except CardError as error:
            raise TaskFailure(CONFIGURATION, str(error)) from error
    return REGISTRY[model]


def _loaded(file: Path) -> ModuleType:
    """Load a user's file; return its module, which has a name that hides no other module."""
    spec = spec_from_file_location(f"psfleet_model_{model_name(str(file))}", file)
    assert spec is not None, file
    assert spec.loader is not None, file
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module

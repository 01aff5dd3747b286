"""A final model that was exported serves in a process that knows TensorFlow alone."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.trainer.row_files import write_tables
from trainer.contract.exit_codes import PROGRAM
from trainer.contract.export import CARD, EXPORT, FILES
from trainer.contract.settings import MODELS, TrainingSettings
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import Checkpoint
from trainer.model.evaluation import FinalModel
from trainer.model.fingerprint import fingerprint_of
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, Model, ModelContext
from trainer.model.pieces import name_of
from trainer.model.saved_model import BOUND, check_served, export_model
from trainer.model.tables import Tables
from trainer.process.failure import TaskFailure

PS, WORKERS = 2, 3


def final_model(name: str) -> FinalModel:
    """A model with numbers drawn at random, as the checkpoint of two ps and three workers holds it."""
    settings = TrainingSettings(model=name, hidden_units=7, table_rows=20_000)
    model, generator = REGISTRY[name], np.random.default_rng(5)
    context = ModelContext(settings, model.load(settings, WORKERS), Devices(("",) * PS, ""))
    with tf.Graph().as_default():
        learned = [*model.create_variables(context), *Tables(model, context).variables]
        shapes = {name_of(each): each.shape.as_list() for each in learned}
    values: dict[str, npt.NDArray[np.generic]] = {
        each: np.asarray(generator.standard_normal(shape), np.float32) for each, shape in shapes.items()
    }
    values[COUNTERS] = np.array([40, 0, 20, 10, 10], np.int64)
    tables = {each: values.pop(each) for each in [*values] if each.startswith("tables_")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ckpt-40"
        return FinalModel(Checkpoint(path, 40, values, write_tables(path, tables, 3)), settings, PS)


def examples_of(final: FinalModel) -> npt.NDArray[np.generic]:
    test = final.context.data.test
    return test.read(0, len(test)).features


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "wide_deep" else [pytest.mark.chaos]) for name in MODELS],
)
def test_each_model_serves_any_number_of_examples(tmp_path: Path, name: str) -> None:
    final = final_model(name)
    folder = export_model(final, tmp_path, {"run_id": "r1", "global_step": 40})
    assert [path.name for path in tmp_path.iterdir()] == [EXPORT]
    card = json.loads((folder / CARD).read_text())
    assert (card["run_id"], card["global_step"]) == ("r1", 40)
    assert card["variables_fingerprint"] == fingerprint_of(final.values())
    assert card["checked"]["largest_difference"] <= BOUND
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert card["files"].keys() == files - {CARD}
    assert [file for file in files if not FILES.fullmatch(file)] == []
    for file, entry in card["files"].items():
        assert entry["sha256"] == hashlib.sha256((folder / file).read_bytes()).hexdigest()
    features = final.context.data.test.read(0, 17).features
    assert card["inputs"] == {
        "features": {"dtype": features.dtype.name, "shape": [None, *features.shape[1:]]},
    }
    expected = final.outputs(features)
    assert card["outputs"].keys() == expected.keys()
    served = tf.saved_model.load(str(folder)).signatures["serving_default"](features=tf.constant(features))
    for output, value in expected.items():
        assert value.shape[0] == 17
        assert served[output].numpy() == pytest.approx(value, abs=BOUND * float(np.max(np.abs(value))))
        assert card["outputs"][output] == {"dtype": "float32", "shape": [None, *value.shape[1:]]}


def test_the_outputs_are_what_the_models_say_they_are(tmp_path: Path) -> None:
    final = final_model("placement_demo")
    served = tf.saved_model.load(str(export_model(final, tmp_path, {})))
    values, features = final.values(), examples_of(final)
    expected = np.matmul(features, values["matrix"].T) + values["offset"].T
    assert served.signatures["serving_default"](features=features)["y"].numpy() == pytest.approx(
        expected, abs=1e-5
    )


def with_outputs(outputs: Callable[[tf.Tensor], tf.Tensor]) -> FinalModel:
    model: Model = dataclasses.replace(
        REGISTRY["linear"], outputs=lambda _context, _variables, features: {"y": outputs(features)}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, "linear", model)
        return final_model("linear")


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        (lambda features: features - tf.reduce_mean(features), "its output y differs by"),
        (tf.reduce_mean, "its output y is not a value for each example"),
        pytest.param(
            lambda features: tf.random.uniform(tf.shape(features)),
            "its output y differs by",
            marks=pytest.mark.chaos,
        ),
        pytest.param(
            lambda features: tf.ensure_shape(features, [1000]),
            "it could not serve, exit code 1: ",
            marks=pytest.mark.chaos,
        ),
    ],
)
def test_a_model_that_does_not_serve_as_it_was_trained_leaves_no_export(
    tmp_path: Path, outputs: Callable[[tf.Tensor], tf.Tensor], why: str
) -> None:
    with pytest.raises(TaskFailure) as failure:
        export_model(with_outputs(outputs), tmp_path, {})
    assert failure.value.code == PROGRAM
    assert f"the exported model was checked and removed, because {why}" in failure.value.reason
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("excess", "refused"), [pytest.param(0.5, False, marks=pytest.mark.chaos), (4.0, True)]
)
def test_a_difference_above_the_bound_is_found(tmp_path: Path, excess: float, refused: bool) -> None:
    final = final_model("mnist_mlp")
    folder, features = export_model(final, tmp_path, {}), examples_of(final)
    expected = final.outputs(features)
    expected["scores"][3, 4] += excess * BOUND * np.max(np.abs(expected["scores"]))
    with pytest.raises(TaskFailure, match="its output scores differs") if refused else nullcontext():
        check_served(folder, {"features": features}, expected)


@pytest.mark.chaos
def test_a_later_export_replaces_an_earlier_one(tmp_path: Path) -> None:
    for step in (40, 80):
        folder = export_model(final_model("linear"), tmp_path, {"global_step": step})
    assert json.loads((folder / CARD).read_text())["global_step"] == 80
    assert [path.name for path in tmp_path.iterdir()] == [EXPORT]

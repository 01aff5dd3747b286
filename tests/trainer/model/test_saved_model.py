"""A final model that was exported serves in a process that knows TensorFlow alone."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.trainer.saved_runs import PS, STEP, drawn_values, write_checkpoint
from trainer.contract.exit_codes import PROGRAM
from trainer.contract.export import CARD, EXPORT, FILES
from trainer.contract.model_files import MODELS
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.host.memory import memory_bytes
from trainer.model import saved_model
from trainer.model.checkpoints import Checkpoint
from trainer.model.evaluation import FinalModel
from trainer.model.fingerprint import fingerprint_of
from trainer.model.models import REGISTRY
from trainer.model.models.model import Model
from trainer.model.saved_model import BOUND, Arrays, ServingCheck, check_serving, export_model
from trainer.model.tables.checkpoint_files import RowLayout, SavedTable
from trainer.process.failure import TaskFailure

MOST_BYTES = 30_000
Exported = Callable[[str], tuple[FinalModel, Path]]


def settings_of(name: str) -> TrainingSettings:
    return TrainingSettings(model=name, hidden_units=7, table_rows=20_000)


def final_model(name: str) -> FinalModel:
    """A model with numbers drawn at random, as the checkpoint of two ps and three workers holds it."""
    settings = settings_of(name)
    values, tables = drawn_values(settings)
    with tempfile.TemporaryDirectory() as folder:
        path, saved = write_checkpoint(Path(folder), values, tables)
        return FinalModel(Checkpoint(path, STEP, values, saved), settings, PS)


def model_values(name: str) -> dict[str, npt.NDArray[np.generic]]:
    """The same numbers, of whole variables and tables."""
    values, tables = drawn_values(settings_of(name))
    return {**values, **tables}


def examples_of(final: FinalModel) -> npt.NDArray[np.generic]:
    test = final.context.data.test
    return test.read(0, len(test)).features


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A model and its export, which tests only read; the parts of tables are small."""

    def export(name: str) -> tuple[FinalModel, Path]:
        final, folder = final_model(name), tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(saved_model, "MOST_BYTES", MOST_BYTES)
            return final, export_model(final, folder, {"run_id": "r1", "global_step": 40})

    return cache(export)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "wide_deep" else [pytest.mark.chaos]) for name in MODELS],
)
def test_each_model_serves_any_number_of_examples(name: str, exported: Exported) -> None:
    final, folder = exported(name)
    assert [path.name for path in folder.parent.iterdir()] == [EXPORT]
    card = json.loads((folder / CARD).read_text())
    assert (card["run_id"], card["global_step"]) == ("r1", 40)
    assert card["variables_fingerprint"] == fingerprint_of(model_values(name))
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
    values, features = model_values("placement_demo"), examples_of(final)
    expected = np.matmul(features, values["matrix"].T) + values["offset"].T
    assert served.signatures["serving_default"](features=features)["y"].numpy() == pytest.approx(
        expected, abs=1e-5
    )


def test_a_table_is_written_in_parts_of_bounded_size_and_read_back_as_it_is(exported: Exported) -> None:
    _, folder = exported("wide_deep")
    sizes = [path.stat().st_size for path in folder.glob("variables/variables.data-*")]
    of_table = model_values("wide_deep")["tables_16"]
    assert len(sizes) > of_table.nbytes // MOST_BYTES
    assert max(sizes) <= MOST_BYTES
    served = {its.name: its for its in tf.saved_model.load(str(folder)).variables}
    for number in range(PS):
        np.testing.assert_array_equal(served[f"tables_16/part_{number}:0"].numpy(), of_table[number::PS])


def test_a_model_that_this_host_could_not_load_is_refused(tmp_path: Path) -> None:
    memory = memory_bytes()
    assert memory
    settings = TrainingSettings(model="dlrm", table_rows=memory // 50)
    rows = RowLayout("tables_16", "float32", (sum(rows_of(settings.table_rows)), 16), 3)
    saved = SavedTable(rows, 0, {file: "" for part in range(3) for file in rows.files_of(part)})
    path = tmp_path / "checkpoints/model.ckpt-40"
    path.parent.mkdir()
    for file in saved.sha256:
        with Path(f"{path}.{file.suffix}").open("wb") as empty:
            empty.truncate(file.size)  # no block of the disk is taken
    values, _ = drawn_values(settings_of("dlrm"))
    final = FinalModel(Checkpoint(path, STEP, values, [saved]), settings, PS)
    # Its rows can be looked up here nevertheless.
    assert set(final.outputs(final.context.data.test.read(0, 2).features)) == {"logits", "probabilities"}
    with pytest.raises(TaskFailure, match=r"nothing was exported: its variables have .*GB, and this host"):
        export_model(final, tmp_path, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoints"]


def test_another_value_of_a_variable_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ServingCheck] = []

    def check(folder: Path, request: Arrays, expected: Arrays) -> ServingCheck:
        served.append(check_serving(folder, request, expected))
        return served[-1]

    monkeypatch.setattr(saved_model, "check_serving", check)
    final = final_model("linear")
    export_model(final, tmp_path, {})
    (found,), values = served, final.values()
    found.require_variables(values)
    next_float = np.nextafter(model_values("linear")["weight"], np.float32(np.inf))
    for others in ({**values, "weight": np.asarray(next_float)}, {"bias": values["bias"]}):
        with pytest.raises(TaskFailure, match="removed, because it has other values of weight"):
            found.require_variables(others)


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


@pytest.mark.parametrize(("excess", "refused"), [(0.5, False), (4.0, True)])
@pytest.mark.chaos
def test_a_difference_above_the_bound_is_found(tmp_path: Path, excess: float, refused: bool) -> None:
    final = final_model("mnist_mlp")
    folder, features = export_model(final, tmp_path, {}), examples_of(final)
    expected = final.outputs(features)
    expected["scores"][3, 4] += excess * BOUND * np.max(np.abs(expected["scores"]))
    with pytest.raises(TaskFailure, match="its output scores differs") if refused else nullcontext():
        check_serving(folder, {"features": features}, expected)


@pytest.mark.chaos
def test_a_later_export_replaces_an_earlier_one(tmp_path: Path) -> None:
    for step in (40, 80):
        folder = export_model(final_model("linear"), tmp_path, {"global_step": step})
    assert json.loads((folder / CARD).read_text())["global_step"] == 80
    assert [path.name for path in tmp_path.iterdir()] == [EXPORT]

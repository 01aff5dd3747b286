"""The results of each model on any number of tasks, and the models that pages show."""

import dataclasses
import os
import re
import shutil
import struct
from pathlib import Path

import pytest
import tensorflow as tf

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.replications import SYNC
from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.settings import MODELS, OPTIMIZERS, TrainingSettings
from trainer.contract.table_models import ROW_OPTIMIZERS, TABLE_MODELS
from trainer.model.data import digits
from trainer.model.models import REGISTRY, cnn
from trainer.model.models.model import Devices, ModelContext
from trainer.process.failure import TaskFailure


def _local(folder: Path, *flags: str) -> str:
    """What the trainer prints as a cluster of one process; it must end well."""
    with Cluster(folder, ps=0, workers=1, flags=["--replication=local", *flags]) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": 0}, cluster.outputs()
        return cluster.output("worker0")


def test_every_selectable_model_is_registered_with_all_learning_rates() -> None:
    assert {name: model.name for name, model in REGISTRY.items()} == {name: name for name in MODELS}
    for model in REGISTRY.values():
        expected = ROW_OPTIMIZERS if model.name in TABLE_MODELS else set(OPTIMIZERS) - {"ftrl"}
        assert set(model.learning_rates) == set(expected)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_known_of_models_without_tensorflow_is_so(name: str) -> None:
    model, settings = REGISTRY[name], TrainingSettings(existing_servers=True)
    failure = None
    try:
        data = model.load(settings, 2)
    except TaskFailure as refused:
        failure, data = refused, digits("")
    assert bool(failure) == (name in TABLE_MODELS)
    context = ModelContext(settings, data, Devices((), "/job:localhost"))
    # The few rows of `partition` need not be known: settings that are not for tables leave them out.
    assert bool(model.tables(context)) == (name in TABLE_MODELS or name == "partition")


def test_an_optimizer_without_a_rate_in_the_model_needs_a_learning_rate() -> None:
    model = dataclasses.replace(REGISTRY["linear"], learning_rates={"sgd": 0.3})
    assert model.learning_rate(TrainingSettings(optimizer="adagrad", learning_rate=0.5), 2) == 0.5
    with pytest.raises(TaskFailure) as failure:
        model.learning_rate(TrainingSettings(optimizer="adagrad"), 2)
    assert failure.value.code == CONFIGURATION
    assert failure.value.reason == (
        "trainer_optimizer (--optimizer) is 'adagrad': model linear has its own learning rate for sgd; "
        "expected one of these, or a trainer_learning_rate (--learning_rate) for adagrad"
    )


def test_ps_device_wraps_around_and_is_the_worker_if_there_is_no_ps() -> None:
    two = Devices(("/job:ps/task:0", "/job:ps/task:1"), "/job:worker/task:3")
    assert [two.ps_device(index) for index in range(3)] == [*two.ps, two.ps[0]]
    assert Devices((), "/job:worker/task:0").ps_device(1) == "/job:worker/task:0"


def test_placement_demo_learns_its_matrix_in_one_process(tmp_path: Path) -> None:
    printed = _local(tmp_path, "--model=placement_demo", "--steps=200")
    found = re.search(r"a known 3 x 4 matrix and its offset, found them .* of ([0-9.]+)", printed)
    assert found is not None, printed
    assert float(found[1]) < 0.01


@pytest.mark.chaos
def test_placement_demo_learns_its_matrix_with_three_workers(real_runs: RealRuns) -> None:
    tasks = real_runs.tasks_of(SYNC)
    assert tasks.metrics()["largest_error"] < 0.01
    assert tasks.metrics()["loss"] < 0.001
    matrix, offset = (rf"/job:ps/task:{index}/device:CPU:0: [0-9.]+" for index in (0, 1))
    places = f"matrix on {matrix}, offset on {offset}, loss: [0-9.]+"
    line = rf"Step: 100, global step: \d+, largest error of the {places}"
    assert re.search(line, tasks.output("worker0"))


@pytest.mark.chaos
def test_cnn_reads_the_bundled_digits_with_two_workers(real_runs: RealRuns) -> None:
    tasks = real_runs.tasks_of("sync_on_servers")
    assert tasks.metrics()["accuracy"] >= 0.95
    # 1,437 images by two workers, in batches of 100.
    assert re.search(r"Step: 100, global step: \d+, Epoch: 14, Batch: 6 of 8,", tasks.output("worker0"))


@pytest.mark.parametrize(
    ("flags", "accuracy"),
    [
        (["--activation=sigmoid", "--optimizer=sgd"], 0.93),
        (["--activation=relu", "--optimizer=adam", "--hidden_units=64"], 0.95),
    ],
)
def test_the_variants_of_the_tutorials_print_the_tutorials_lines_and_reach_their_accuracy(
    tmp_path: Path, flags: list[str], accuracy: float
) -> None:
    printed = _local(tmp_path, "--model=mnist_mlp", "--epochs=20", "--batch_size=100", *flags)
    number = r"[0-9]+\.[0-9]+"
    assert re.search(
        rf"Step: 200, global step: 200, Epoch: 14, Batch: 13 of 15, Cost: {number}, AvgTime: {number}ms",
        printed,
    )
    reached = re.search(rf"Test-Accuracy: ({number})\n", printed)
    assert reached is not None
    assert float(reached[1]) >= accuracy
    for line in ("Validation cross entropy: N\n", "Total Time: Ns\n", "Final Cost: N\n"):
        assert re.search(line.replace("N", number), printed), line
    assert "Steps of this worker: 288, global step: 288" in printed, "20 epochs of 1,437 images by 100"


def _images(folder: Path, rows: int, columns: int) -> ModelContext:
    for part in ("train", "t10k"):
        header = struct.pack(">IIII", 0x803, 5, rows, columns)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + bytes(5 * rows * columns))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, 5) + bytes(range(5)))
    settings = TrainingSettings(model="cnn", data_dir=str(folder), hidden_units=7)
    return ModelContext(settings, digits(str(folder)), Devices((), "/job:localhost"))


@pytest.mark.parametrize(("side", "flat"), [(28, 7 * 7 * 64), (9, 3 * 3 * 64), (1, 64)])
def test_cnn_accepts_square_images_of_any_size(tmp_path: Path, side: int, flat: int) -> None:
    context = _images(tmp_path, side, side)
    with tf.Graph().as_default():
        variables = cnn.create_variables(context)
        assert variables[4].shape == (flat, 7)
        scores = cnn.logits(context, variables, tf.zeros([3, side * side]))
        assert scores.shape == (3, 10)


def test_cnn_refuses_images_that_are_not_square(tmp_path: Path) -> None:
    context = _images(tmp_path, 2, 9)
    with tf.Graph().as_default(), pytest.raises(TaskFailure) as failure:
        cnn.create_variables(context)
    assert failure.value.code == INPUT
    assert failure.value.reason == (f"{tmp_path}: images have 18 pixels, expected square ones for model cnn")


@pytest.mark.parametrize(
    ("page", "model", "options", "most"),
    [
        ("models", "parabola", "--steps=400", 0.05),
        ("tables", "ratings", "--steps=1500 --batch_size=500", 0.5),
    ],
)
def test_the_model_of_a_page_learns(tmp_path: Path, page: str, model: str, options: str, most: float) -> None:
    """The code block of the page is saved where the page says, in a copy of the trainer."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    shutil.copytree(ROOT / "trainer", tmp_path / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / f"trainer/model/models/{model}.py").write_text(blocks[0])
    start = tmp_path / "start.py"
    start.write_text(
        f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_module('trainer', "
        "run_name='__main__', alter_sys=True)"
    )
    command = [str(start), "--job_name=local", f"--model={model}", *options.split()]
    output = tmp_path / "out"
    process = ForkedProcess(command, tmp_path, {**os.environ, "CUDA_VISIBLE_DEVICES": ""}, output)
    process.wait(120)
    printed = output.read_text()
    assert process.poll() == 0, printed
    assert re.search(r"^Step: [1-9]00, global step: [1-9]00, ", printed, re.MULTILINE)
    error = re.search(r"^(?:Largest error of a coefficient|Squared error): ([0-9.]+)", printed, re.MULTILINE)
    assert error is not None
    assert float(error[1]) < most

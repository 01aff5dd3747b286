"""The results of each model on any number of tasks, and the models that pages show."""

import dataclasses
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.replications import SYNC
from tests.repository import ROOT
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION, INPUT, USAGE
from trainer.contract.model_card import CLICKS, OF_DATA, OF_SETTING, OPTIMIZERS, Card
from trainer.contract.model_files import MODELS
from trainer.contract.settings import RULES, TrainingSettings
from trainer.contract.table_models import ROW_OPTIMIZERS, rows_of
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
        expected = ROW_OPTIMIZERS if model.card.needs_tables else set(OPTIMIZERS) - {"ftrl"}
        assert set(model.card.learning_rates) == set(expected)
        assert {*model.card.settings} <= {*RULES}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_known_of_models_without_tensorflow_is_so(name: str) -> None:
    model, settings = REGISTRY[name], TrainingSettings(existing_servers=True)
    failure = None
    try:
        data = model.load(settings, 2)
    except TaskFailure as refused:
        failure, data = refused, digits("")
    assert bool(failure) == (model.card.data == CLICKS)
    context = ModelContext(settings, data, Devices((), "/job:localhost"))
    assert (context.data.parts > 1) == model.card.own_parts
    rows = {OF_SETTING: sum(rows_of(settings.table_rows)), OF_DATA: 4}
    tables = {table.name: (table.width, table.rows) for table in model.tables(context)}
    assert tables == {
        name: (its["width"], rows.get(its["rows"], its["rows"])) for name, its in model.card.tables.items()
    }


def test_an_optimizer_without_a_rate_in_the_model_needs_a_learning_rate() -> None:
    model = dataclasses.replace(REGISTRY["linear"], card=Card(learning_rates={"sgd": 0.3}))
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


# Trains a model in the project of the working directory, with one ps and one worker, and judges the run.
_TRAIN_AND_JUDGE = """
import sys
from pathlib import Path

if __name__ == "__main__":
    from psfleet.evidence.__main__ import main
    from tests.psfleet.evidence.run_folders import train

    run = train(Path(sys.argv[1]), 1, sys.argv[2:])
    sys.exit(main([str(run)]))
"""


@pytest.mark.parametrize(
    ("page", "model", "options", "metrics"),
    [
        ("models", "parabola", ["--steps=400"], "largest_error, loss"),
        ("tables", "ratings", ["--steps=1500", "--batch_size=500"], "squared_error"),
    ],
)
def test_the_model_of_a_page_is_trained_and_proven_in_a_copy_of_the_project(
    tmp_path: Path, page: str, model: str, options: list[str], metrics: str
) -> None:
    """The page's model is saved among the built-in models, `make docs` writes the rest; its test passes."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL)
    code, *tests = blocks
    copy = tmp_path / "project"
    for name in ("trainer", "psfleet", "plugins", "tools", "docs", "roles/trainer", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / f"trainer/model/models/{model}.py").write_text(code)
    (copy / "train_and_judge.py").write_text(_TRAIN_AND_JUDGE)
    _in_copy(copy, "-m", "tools.written_docs")
    assert f" {model}," in (copy / "roles/trainer/meta/argument_specs.yml").read_text()
    assert f"| `{model}` |" in (copy / "docs/models.md").read_text()
    judged = _in_copy(copy, "train_and_judge.py", str(tmp_path), f"--model={model}", *options)
    assert judged.stdout.startswith("PROVEN: "), judged.stdout
    printed = (tmp_path / "hosts/worker0.out").read_text()
    assert re.search(r"^Step: [1-9]00, global step: [1-9][0-9]+, ", printed, re.MULTILINE)
    assert re.search(r"^(?:Largest error of a coefficient|Squared error): [0-9.]+$", printed, re.MULTILINE)
    for test in tests:
        (copy / f"tests/trainer/model/test_{model}.py").write_text(test)
        _in_copy(copy, "-m", "pytest", f"tests/trainer/model/test_{model}.py")
    ends = ["--evaluate_every_steps=9", "--stop_when=auc>1", f"--run_directory={tmp_path}"]
    refused = _in_copy(copy, "-m", "trainer", "--job_name=local", f"--model={model}", *ends, exit_code=USAGE)
    what = f"--stop_when is 'auc > 1', and --model '{model}' has no such metric"
    assert f"{what}; expected one of {metrics}\n" in refused.stderr


def _in_copy(copy: Path, *command: str, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == exit_code, f"{done.stdout}\n{done.stderr}"
    return done

"""The evaluator reads the folder of an ended run, or refuses it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psfleet.evidence.reading import read_run
from tests.psfleet.evidence.run_folders import edit, plan_of, records, write_plan
from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION, FAILURE_CLASSES, FINISHED, INPUT, USAGE
from trainer.contract.export import CARD, EXPORT
from trainer.evaluator import main
from trainer.model.checkpoints import checkpoint_paths, read_checkpoint
from trainer.model.fingerprint import fingerprint_of

FLAGS = ("--replication=local", "--optimizer=adam", "--steps=40", "--checkpoint_interval_steps=20")
EVALUATOR = "evaluator0"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a chief that has ended, with two checkpoints."""
    with Cluster(tmp_path_factory.mktemp("ended"), ps=0, workers=1, flags=FLAGS) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": FINISHED}, cluster.outputs()
        return cluster.directory("worker0")


@pytest.fixture
def run(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it. Its evaluator runs within this process, and hides the GPUs from it."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    return Path(shutil.copytree(ended, tmp_path / "test"))


def only(run: Path, task: str, event: str) -> dict[str, Any]:
    (found,) = (record for record in records(run, task) if record["event"] == event)
    return found


def test_the_evaluator_finds_the_chiefs_results_in_a_process_of_its_own(ended: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(ended, tmp_path / "test"))
    output, environment = tmp_path / "out", {"PSFLEET_RELEASE": "release-2", "CUDA_VISIBLE_DEVICES": "0"}
    process = ForkedProcess(["-m", "trainer.evaluator", str(run)], ROOT, os.environ | environment, output)
    process.wait(120)
    said = output.read_text()
    assert process.poll() == FINISHED, said
    found = records(run, EVALUATOR)
    assert [record["event"] for record in found] == ["started", "restored", "evaluated", "finished"]
    started, restored, evaluated, finished = found
    of_chief = only(run, "worker0", "started")
    assert started["settings"] == of_chief["settings"]
    assert started["nonce"] != of_chief["nonce"]
    assert (started["pid"] != of_chief["pid"], started["address"]) == (True, "")
    assert {record["release"] for record in found} == {"release-2"}
    last = checkpoint_paths(run / "checkpoints")[-1]
    assert (restored["global_step"], restored["checkpoint"]) == (40, str(last))
    assert evaluated["metrics"] == pytest.approx(only(run, "worker0", "evaluated")["metrics"], rel=1e-5)
    checkpoint, problem = read_checkpoint(last)
    assert checkpoint, problem
    assert evaluated["fingerprint"] == fingerprint_of(checkpoint.values)
    assert (evaluated["global_step"], evaluated["examples"]) == (40, 360)
    assert finished["reason"] == "evaluated"
    assert f"Test-Accuracy: {evaluated['metrics']['accuracy']:.4f}" in said
    assert "Evaluated 360 test examples" in said


def test_each_evaluation_adds_a_process_to_the_evaluators_own_records(run: Path) -> None:
    assert main([str(run)]) == FINISHED
    assert main([str(run)]) == FINISHED
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    plan = plan_of(("ps", "h:1"), ("worker", "h:2"))
    write_plan(run, plan, only(run, "worker0", "started")["settings"])
    read = read_run(run)
    assert read.unplanned == ()
    assert EVALUATOR not in read.tasks
    lives = read.evaluator.processes
    assert len({life.nonce for life in lives}) == 2
    assert [life.ending.text("reason") for life in lives if life.ending] == ["evaluated", "evaluated"]


def remove_the_last_checkpoint(run: Path) -> None:
    for file in (run / "checkpoints").glob("model.ckpt-40.*"):
        file.unlink()


def cut_the_last_checkpoint(run: Path) -> None:
    (data,) = (run / "checkpoints").glob("model.ckpt-40.data*")
    data.write_bytes(data.read_bytes()[:100])


def forget_checkpoints(run: Path) -> None:
    file = run / "events" / "worker0.jsonl"
    file.write_text("".join(line for line in file.open() if '"checkpointed"' not in line))


def remove_all_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    forget_checkpoints(run)


def told(**settings: object) -> Callable[[Path], None]:
    """Return a function that changes the settings in the chief's records."""
    return lambda run: edit(
        run, "worker0", "started", settings=only(run, "worker0", "started")["settings"] | settings
    )


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (remove_the_last_checkpoint, INPUT, ["it is not there", "others here: ", "model.ckpt-20"]),
        (cut_the_last_checkpoint, INPUT, ["model.ckpt-40", "cannot be read"]),
        (remove_all_checkpoints, INPUT, ["there is no checkpoint", "checkpoints"]),
        (lambda run: (run / "events" / "worker0.jsonl").unlink(), INPUT, ["worker0.jsonl", "`started`"]),
        (told(model="linear"), CONFIGURATION, ["hidden/weights", "linear", "weight"]),
        (
            told(hidden_units=3),
            CONFIGURATION,
            ["hidden/biases", "float32 of shape (100,)", "(3,)", "output/weights"],
        ),
        (told(model="deeplab"), CONFIGURATION, ["worker0.jsonl", "deeplab", "mnist_mlp"]),
        (lambda run: edit(run, "worker0", "", program="0123456789ab"), CONFIGURATION, ["0123456789ab"]),
    ],
)
def test_the_reason_of_a_failed_evaluation_is_printed_and_recorded(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
    code: int,
    words: list[str],
) -> None:
    damage(run)
    assert main([str(run)]) == code
    failed = only(run, EVALUATOR, "failed")
    assert failed["class"] == FAILURE_CLASSES[code]
    assert [word for word in words if word not in failed["reason"]] == []
    assert failed["reason"] in capsys.readouterr().out
    assert [record for record in records(run, EVALUATOR) if record["event"] == "evaluated"] == []


def test_a_checkpoint_with_variables_that_the_model_lacks_is_refused(run: Path) -> None:
    """The checkpoint has all variables of a linear model, and one more."""
    import tensorflow as tf

    values = {
        "weight": tf.constant(2.0),
        "bias": tf.constant(10.0),
        "beta1_power": tf.constant(0.9),
        "weight/Adam": tf.constant(0.0),
        "other/weights": tf.constant([1.0, 2.0]),
        "psfleet/counters": tf.constant([40, 0, 40], tf.int64),
    }
    tf.raw_ops.SaveV2(
        prefix=str(run / "checkpoints" / "model.ckpt-40"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    told(model="linear")(run)
    assert main([str(run)]) == CONFIGURATION
    reason = only(run, EVALUATOR, "failed")["reason"]
    assert "other/weights" in reason
    assert "weight/Adam" not in reason


def test_the_newest_checkpoint_is_evaluated_if_the_chief_recorded_none(run: Path) -> None:
    forget_checkpoints(run)
    assert main([str(run)]) == FINISHED
    assert only(run, EVALUATOR, "evaluated")["global_step"] == 40


def test_the_final_model_is_exported_and_nothing_else_is_written(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["--export", str(run)]) == FINISHED
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {path for path in after if after[path] != before.get(path)} == {*(run / EXPORT).rglob("*.*")}
    card = json.loads((run / EXPORT / CARD).read_text())
    of_chief, evaluated = (only(run, "worker0", event) for event in ("started", "evaluated"))
    assert [card[name] for name in ("run_id", "release")] == [
        of_chief[name] for name in ("run_id", "release")
    ]
    assert card["metrics"] == pytest.approx(evaluated["metrics"], rel=1e-5)
    assert (card["global_step"], card["examples"]) == (40, 360)
    checkpoint, problem = read_checkpoint(run / "checkpoints" / card["checkpoint"])
    assert checkpoint, problem
    assert card["fingerprint"] == fingerprint_of(checkpoint.values)
    # The optimizer's slots are not exported.
    assert card["variables_fingerprint"] != card["fingerprint"]


def test_a_release_that_computes_another_model_exports_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = only(run, "worker0", "evaluated")["metrics"]
    edit(run, "worker0", "evaluated", metrics=found | {"accuracy": 0.25})
    assert main(["--export", str(run)]) == CONFIGURATION
    told = capsys.readouterr().out
    assert "evaluator0 failed (configuration): accuracy is " in told
    assert "here, and the chief of the run found 0.25 at that step: this release computes another" in told
    assert not (run / EXPORT).exists()
    assert not (run / "events" / "evaluator0.jsonl").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["a", "b"], ["absent"], ["--export"], ["--export", "absent"], ["--export=1", "."]),
        *(["--follow"], ["--follow", "absent"], ["--follow=1", "."], ["--follow", "--export", "."]),
        *(["--model=x", "."], ["--export", "--inputs=x", "."], ["--export", "--model=", "."]),
    ],
)
def test_any_other_arguments_than_one_directory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == USAGE
    assert "expected one directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

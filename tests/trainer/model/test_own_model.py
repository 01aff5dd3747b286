"""A user's model is trained, evaluated, judged and exported from its file, as a built-in one is."""

import json
import os
import re
from pathlib import Path

import pytest

from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from tests.psfleet.evidence.run_folders import train
from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import CONFIGURATION, FINISHED, PROGRAM, USAGE
from trainer.contract.export import CARD, EXPORT
from trainer.contract.model_files import read_card

PARABOLA = re.findall(r"```python\n(.*?)```", (ROOT / "docs/models.md").read_text("utf-8"), re.DOTALL)[0]
ENDS = ("--steps=1000000", "--evaluate_every_steps=100", "--stop_when=largest_error<0.01")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file, where deploy.yml puts it on a host."""
    path = tmp_path_factory.mktemp("own") / "programs" / "0a1b2c3d4e5f" / "mine.py"
    path.parent.mkdir(parents=True)
    path.write_text(PARABOLA, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that an evaluation ends."""
    flags = (f"--model={file}", *ENDS)
    return train(tmp_path_factory.mktemp("run"), 1, flags, programs={"worker0": PAUSING})


def test_a_run_of_it_ends_by_its_metric_and_is_judged_by_its_card(run: Path, file: Path) -> None:
    (unknown,) = judge_run(read_run(run), EvidenceSettings()).failing
    assert unknown.detail.startswith("no goal is known for model 'mine'; training_evidence_goals")
    settings = json.loads((run / "settings.json").read_text())
    settings["card"] = read_card(file).to_json()
    (run / "settings.json").write_text(json.dumps(settings))
    verdict = judge_run(read_run(run), EvidenceSettings())
    assert verdict.verdict == "proven", verdict.failing
    (converged,) = (answer for answer in verdict.checks if answer.check == "model_converged")
    assert re.fullmatch(r"largest_error 0\.00[0-9]+, expected at most 0\.05", converged.detail)
    assert verdict.figures["model"] == "mine"
    assert "largest_error" in str(verdict.figures["early_end"])


def test_it_is_exported(run: Path) -> None:
    chief = run.parent / "hosts" / "worker0"
    output = run.parent / "export.out"
    process = ForkedProcess(["-m", "trainer.evaluator", "--export", str(chief)], chief, os.environ, output)
    process.wait(150)
    assert process.poll() == FINISHED, output.read_text()
    card = json.loads((chief / EXPORT / CARD).read_text())
    assert card["model"] == "mine"
    assert [*card["outputs"]] == ["y"], card


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, USAGE, "cannot be read (No such file or directory); expected a model's Python file"),
        ("CARD = {}\n", USAGE, "mine.py:1: CARD: learning_rates is missing"),
        (
            "CARD = {'learning_rates': {'sgd': 1}}\n",
            CONFIGURATION,
            "has no MODEL; expected MODEL = Model(...)",
        ),
        ("CARD = {'learning_rates': {'sgd': 1}}\nimport no_such\n", PROGRAM, "No module named 'no_such'"),
    ],
)
def test_a_file_that_is_no_model_ends_the_task_with_its_reason(
    tmp_path: Path, content: str | None, code: int, says: str
) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with Cluster(tmp_path, 0, 1, ["--replication=local", f"--model={path}"]) as cluster:
        cluster.start()
        assert cluster.wait() == {"worker0": code}, cluster.outputs()
        assert says in cluster.only("worker0", "failed").text("reason"), cluster.outputs()

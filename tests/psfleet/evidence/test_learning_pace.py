"""How fast a run learned for its examples, beside runs of one process."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from psfleet.evidence import learning_pace
from psfleet.evidence.learning_pace import FOLDER, SEEDS, STUDENT, examples_until, pace_of
from psfleet.evidence.reading import read_run
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.task_records import TaskRecords
from psfleet.evidence.verdict_lines import figure_lines
from psfleet.report.series import one_process_curves
from tests.psfleet.evidence.replications import IN_GRAPH, LOCAL
from tests.psfleet.evidence.run_folders import verdict_of
from tests.repository import ROOT
from trainer.contract.records import Record
from trainer.contract.run_tasks import RunTask
from trainer.contract.settings import TrainingSettings

MODEL, BATCH = "mnist_mlp", 100
ALONE = learning_pace._references(MODEL)["local", 1, BATCH]
SETTINGS = ("learning_rate", "optimizer", "hidden_units", "activation", "data_dir")
Windows = Sequence[Mapping[str, object]]


def run_of(
    windows: Windows,
    workers: int = 2,
    program: dict[str, Any] | None = None,
    told: Mapping[str, object] = MappingProxyType({}),
) -> Run:
    """Return a run in which each worker recorded these windows; worker 0 may have other settings."""
    settings = TrainingSettings(model=MODEL).as_dict()
    tasks = {}
    for index in range(workers):
        of_this = settings | (dict(told) if index == 0 else {})
        started = _record("started", index, {"settings": of_this, "nonce": index})
        tasks[f"worker{index}"] = TaskRecords(
            f"worker{index}", (started, *(_record("step", index, dict(window)) for window in windows))
        )
    expected = tuple(RunTask("worker", index, f"host{index}") for index in range(workers))
    rules = ReplicationRules("async", workers)
    return Run(Path(), "run", program=program, rules=rules, expected=expected, tasks=tasks)


def _record(event: str, index: int, fields: dict[str, object]) -> Record:
    return Record(event, "run", "worker", index, "host", 1, "", "", 0.0, 0.0, fields)


def windows_of(curve: learning_pace.Curve, slower: float = 1.0, wide: int = 2) -> Windows:
    """Windows of a run that needed so many times the examples of a curve."""
    steps = [round(slower * examples / BATCH) for examples, _ in curve]
    return [
        {
            "local_step": step,
            "steps": wide,
            "global_step_before": step - wide // 2,
            "global_step_after": step + wide // 2,
            "examples": wide * BATCH,
            "seconds": 1.0,
            "loss": loss,
            "loss_mean": loss,
        }
        for step, (_, loss) in zip(steps, curve, strict=True)
    ]


def test_a_run_that_learns_like_one_process_has_its_pace() -> None:
    pace = pace_of(run_of(windows_of(ALONE[3])))
    assert pace is not None
    assert pace.loss < 0.5  # it went on to a fraction of the target
    assert pace.examples == pytest.approx(examples_until(pace.loss, ALONE[3]), rel=0.02)
    assert pace.examples <= pace.most
    assert abs(math.log(pace.one_process / pace.examples)) < math.log(pace.most / pace.one_process)


def test_a_run_that_needs_more_examples_is_slower_in_proportion() -> None:
    pace = pace_of(run_of(windows_of(ALONE[3], slower=1.5)))
    assert pace is not None
    assert pace.examples > pace.most
    assert pace.examples / pace.one_process == pytest.approx(1.5, rel=0.1)


def test_the_usual_pace_is_given_for_known_numbers_of_workers() -> None:
    two, other = pace_of(run_of(windows_of(ALONE[0]))), pace_of(run_of(windows_of(ALONE[0]), workers=7))
    assert two is not None and two.usual is not None and two.usual > two.one_process
    assert other is not None and other.usual is None
    damped = pace_of(replace(run_of(windows_of(ALONE[0])), training={"staleness": "damped"}))
    assert damped is not None and damped == replace(two, usual=None)


def test_a_run_with_several_batches_to_a_push_has_the_pace_of_a_process_that_applies_each() -> None:
    each = pace_of(run_of(windows_of(ALONE[3])))
    four = [
        dict(window) | {name: round(float(str(window[name])) / 4) for name in places}
        for window in windows_of(ALONE[3], wide=8)
        for places in [("steps", "global_step_before", "global_step_after")]
    ]
    pace = pace_of(run_of(four, workers=1, told={"push_every": 4}))
    assert each is not None and pace is not None
    assert pace.examples == pytest.approx(each.examples, rel=0.05)
    assert (pace.one_process, pace.usual) == (each.one_process, None)
    assert pace_of(run_of(four, told={"push_every": 4})) is None  # only worker 0 pushes so rarely
    assert pace_of(run_of(four, workers=1, told={"push_every": "4"})) is None


@pytest.mark.parametrize(
    "told",
    [
        *(
            {name: "another"}
            for name in ["learning_rate", "optimizer", "hidden_units", "activation", "data_dir"]
        ),
        *({"batch_size": size} for size in (50, 200, "100", 10**400)),
        {"model": "../references/mnist_mlp"},
    ],
    ids=str,
)
def test_a_run_with_other_settings_has_no_pace(told: dict[str, object]) -> None:
    run = run_of(windows_of(ALONE[0]), told=told)
    assert pace_of(run) is None
    assert one_process_curves(run) == []


def test_a_program_whose_model_has_the_name_of_a_built_in_model_has_no_pace() -> None:
    assert pace_of(run_of(windows_of(ALONE[0]), program={"file": "train.py"})) is None


def test_a_run_with_windows_that_are_too_long_has_no_pace() -> None:
    assert pace_of(run_of(windows_of(ALONE[0], wide=1000))) is None


@pytest.mark.parametrize(
    "odd",
    [
        {"loss_mean": math.nan},
        {"loss_mean": 1e308},
        {"loss_mean": -1e308},
        {"steps": 0},
        {"global_step_before": 0, "global_step_after": 0},
        {"global_step_before": 2**62, "global_step_after": 2**63 - 1},
        {"global_step_before": 10, "global_step_after": 5},
    ],
    ids=str,
)
def test_a_single_odd_window_does_not_change_the_pace(odd: dict[str, object]) -> None:
    windows = windows_of(ALONE[0])
    assert pace_of(run_of([*windows, dict(windows[len(windows) // 2]) | odd])) == pace_of(run_of(windows))


def test_a_run_with_the_seed_of_a_reference_learns_at_its_pace(trained: Callable[[str], Path]) -> None:
    """If this fails, the model, its data or its rates have changed: run `make references`."""
    run = read_run(trained(LOCAL))
    reference = learning_pace._references("linear")["local", 1, BATCH][0]
    own = learning_pace.curve_of(run, BATCH)
    assert examples_until(0.2, own) == pytest.approx(examples_until(0.2, reference), rel=0.05)


def test_towers_are_compared_with_one_process_of_all_their_examples(trained: Callable[[str], Path]) -> None:
    verdict = verdict_of(trained(IN_GRAPH))
    pace = verdict.figures["pace"]
    needed = learning_pace._until(pace["loss"], learning_pace._references("linear")["local", 1, 3 * BATCH])
    assert pace["one_process"] == round(math.exp(sum(needed) / SEEDS))
    assert f"one process ({pace['one_process']:,}" in dict(figure_lines(verdict.figures))["pace of learning"]


@pytest.mark.parametrize(
    ("examples", "replication", "usual", "said"),
    [
        (
            10_200,
            "async",
            None,
            "loss 0.25 after 10,200 examples, as fast as one process (10,000, at most 10,300)",
        ),
        (
            15_000,
            "async",
            14_000,
            "loss 0.25 after 15,000 examples, 1.50 times as many as one process (10,000),"
            " which staleness costs; usual: 1.40 times",
        ),
        (
            15_000,
            "sync, 2 of 3 gradients to a step",
            None,
            "loss 0.25 after 15,000 examples, 1.50 times as many as one process (10,000)",
        ),
    ],
)
def test_the_pace_is_shown_in_words(
    examples: int, replication: str, usual: int | None, said: str, healthy: Path
) -> None:
    pace = {"loss": 0.25, "examples": examples, "one_process": 10_000, "most": 10_300, "usual": usual}
    figures = {**verdict_of(healthy).figures, "pace": pace, "replication": replication}
    assert dict(figure_lines(figures))["pace of learning"] == said


def test_the_report_draws_one_process_as_far_as_the_run_went() -> None:
    windows = windows_of(ALONE[0])[:10]
    run = run_of(windows)
    curves = one_process_curves(run)
    assert len(curves) == SEEDS
    assert all(0 < step <= run.global_steps for curve in curves for step, _ in curve)
    assert curves[0][0] == (ALONE[0][0][0] / BATCH, ALONE[0][0][1])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_reference_has_all_seeds_and_reached_the_target(path: Path) -> None:
    references = learning_pace._references(path.stem)
    assert {("local", 1, BATCH), ("local", 1, 8 * BATCH), ("async", 4, BATCH)} <= references.keys()
    target = max(learning_pace._levels(path.stem))
    for curves in references.values():
        assert len(curves) == SEEDS
        assert all(examples_until(target, curve) for curve in curves)


@pytest.mark.parametrize("model", ["linear", "mnist_mlp", "cnn"])
def test_the_docs_have_the_means_of_the_references(model: str) -> None:
    text = (ROOT / "docs" / "verdict.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith(f"| `{model}`, 0.")]
    loss, *told = [cell.strip() for cell in row.strip("|").split("|")]
    asked = [("local", 1, 100), *(("async", workers, 100) for workers in (2, 3, 4))]
    asked += [("local", 1, 200), ("sync", 2, 200)]
    for kind, mean in zip(asked, told, strict=True):
        needed = learning_pace._until(float(loss.split()[-1]), learning_pace._references(model)[kind])
        assert f"{math.exp(sum(needed) / len(needed)):,.0f}" == mean


def test_the_quantile_is_that_of_students_distribution() -> None:
    """One part in a hundred of its density lies beyond; by Simpson's rule up to where nothing is left."""
    freedom, steps, end = SEEDS - 1, 20_000, 400.0
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    width = (end - STUDENT) / steps
    density = [
        scale * (1 + (STUDENT + place * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
        for place in range(steps + 1)
    ]
    beyond = width / 3 * (density[0] + 4 * sum(density[1::2]) + 2 * sum(density[2:-1:2]) + density[-1])
    assert beyond == pytest.approx(0.01, rel=1e-3)

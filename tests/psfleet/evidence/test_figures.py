"""The figures of a verdict: speed, stragglers, staleness and the balance of the ps, from the records."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psfleet.evidence.figures import figures_of, speeds_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.verdict_lines import as_lines, figure_lines
from tests.psfleet.evidence.replications import STEPS, SYNC, count, counted
from tests.psfleet.evidence.run_folders import edit, leave_out, steps_and_others, tell_batches, verdict_of


def figures(run: Path) -> dict[str, Any]:
    return dict(verdict_of(run).figures)


def lines(run: Path) -> dict[str, str]:
    return dict(figure_lines(figures(run)))


def test_a_worker_that_waits_for_others_is_no_straggler(run: Path) -> None:
    """In each step worker 1 computes for four seconds; worker 0 computes for one and waits for three."""
    for task, waiting in {"worker0": 3.0, "worker1": 0.0}.items():
        edit(run, task, "step", seconds=4.0, steps=1, waiting_seconds=waiting)
    found = figures(run)
    assert found["workers"]["worker0"]["slowdown"] < 1
    assert found["stragglers"] == ["worker1"]
    assert found["workers"]["worker0"]["waiting_seconds"] == 3.0 * len(steps_and_others(run, "worker0")[0])
    assert "s for others" in lines(run)["worker0"]


def test_staleness_is_counted_over_all_workers(run: Path) -> None:
    edit(run, "worker0", "step", staleness_histogram=[1, 2], staleness_mean=1.0, staleness_max=1, steps=3)
    assert "own" not in lines(run)["staleness"]
    edit(run, "worker0", "step", own_steps_behind=2)
    edit(
        run, "worker1", "step", staleness_histogram=[0, 1, 0, 1], staleness_mean=4.0, staleness_max=7, steps=2
    )
    windows = [len(steps_and_others(run, task)[0]) for task in ("worker0", "worker1")]
    found = figures(run)["staleness"]
    assert found["histogram"] == [windows[0], 2 * windows[0] + windows[1], 0, windows[1]]
    assert found["maximum"] == 7
    assert found["mean"] == pytest.approx(
        (3 * windows[0] + 8 * windows[1]) / (3 * windows[0] + 2 * windows[1]), abs=1e-3
    )
    assert f"at most 7; {2 * windows[0]} gradients missed their worker's own last" in lines(run)["staleness"]


def test_a_gradient_of_several_batches_is_told(run: Path) -> None:
    assert figures(run)["batches_in_a_step"] == 1
    assert "batches" not in lines(run)["global steps"]
    tell_batches(run, 8)
    assert figures(run)["batches_in_a_step"] == 8
    assert lines(run)["global steps"].endswith(", 8 batches in a gradient")


def test_examples_of_dropped_gradients_do_not_count(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(SYNC)
    found = figures(run)
    assert found["examples"] == pytest.approx(2 * STEPS * 100, abs=3)  # two gradients of 100 examples a step
    count(run, worker1=counted(run)["worker1"] // 2)
    was, now = found["workers"]["worker1"], figures(run)["workers"]["worker1"]
    for rate in ("examples_per_second", "steps_per_second"):
        assert now[rate] == pytest.approx(was[rate] / 2, rel=0.02)


def test_figures_are_empty_if_old_or_invalid_records_lack_their_fields(run: Path) -> None:
    new = "staleness_mean staleness_max staleness_histogram waiting_seconds"
    leave_out(run, "worker0 worker1", new)
    edit(run, "worker0 worker1", "", program="p")
    edit(run, "worker0", "initialised", ps_parameters={"ps0": {"variables": "many"}})
    found = figures(run)
    assert (found["staleness"], found["ps"]) == (None, {})
    assert found["workers"]["worker1"]["waiting_seconds"] is None
    assert found["workers"]["worker1"]["staleness_mean"] is None


def test_a_run_without_steps_has_no_speeds() -> None:
    assert speeds_of(Run(Path(), "none")) == {}
    assert figures_of(Run(Path(), "none"))["seconds"] == 0


def test_the_staleness_of_a_synchronous_run_is_shown_with_the_fate_of_stale_gradients(
    copy_of: Callable[[str], Path],
) -> None:
    run = copy_of(SYNC)
    edit(run, "worker0", "step", staleness_histogram=[0, 1], staleness_mean=1.0, staleness_max=1)
    # Of the other workers it is what it was: a busy machine may let one of them come several steps too late.
    shown = r", at most [1-9]\d*; such a gradient comes too late and is dropped$"
    assert re.search(shown, lines(run)["staleness"])


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0005, " 2,000 a second"), (0.01, " 100 a second"), (0.3, " 3.33 a second")]
)
def test_a_rate_is_shown_as_a_plain_number(run: Path, seconds: float, said: str) -> None:
    edit(run, "worker0", "step", seconds=seconds, steps=1)
    assert said in lines(run)["worker0"]


@pytest.mark.parametrize("columns", [40, 60, 110])
def test_lines_are_wrapped_between_words_for_a_narrow_terminal(run: Path, columns: int) -> None:
    verdict, folder = (
        verdict_of(run),
        Path("/a/path/of/a/run/that/is/longer/than/any/terminal/has/columns" * 2),
    )
    whole = [line for line, _ in as_lines(verdict, folder)]
    narrow = [line for line, _ in as_lines(verdict, folder, columns)]
    assert " ".join(narrow).split() == " ".join(whole).split()
    assert max(len(line) for line in narrow if "/a/path" not in line) <= columns < max(map(len, whole))
    assert any(line.endswith(str(folder)) for line in narrow)
    assert all(line.startswith("  ") for line in narrow[narrow.index("") :] if line)

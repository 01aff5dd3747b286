"""The verdict on real runs: with a shared model, with separate models, and with a suspended worker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.psfleet.evidence.run_folders import UNSHARED, checks, detail, steps_and_others, train, verdict_of
from tests.repository import ROOT

SHARING = {*UNSHARED, "fingerprints_agree"}


def test_a_healthy_run_is_proven(healthy: Path) -> None:
    verdict = verdict_of(healthy)
    assert checks(verdict, False, None) == set(), verdict.failing
    assert (verdict.verdict, verdict.exit_code) == ("proven", 0)
    assert verdict.headline == "PROVEN: 2 workers trained one model together through 1 ps, and it converged"
    # One worker may take the last step while the other is amid a call of four.
    assert 400 <= verdict.figures["global_steps"] <= 404
    assert sum(worker["steps"] for worker in verdict.figures["workers"].values()) >= 400
    assert abs(verdict.figures["metrics"]["weight"] - 2) < 0.2
    assert verdict.figures["examples_per_second"] > 0


def test_workers_with_separate_ps_are_not_proven_although_both_converged(split_brain: Path) -> None:
    verdict = verdict_of(split_brain)
    assert verdict.exit_code == 1
    assert checks(verdict, False) == SHARING
    assert checks(verdict, None) == set()
    assert verdict.headline.startswith("NOT PROVEN: nothing shows that 2 workers trained one model together")
    assert "worker1 met another ps0 than the chief" in detail(verdict, "same_parameter_servers")
    assert "worker0 and worker1 did not meet" in detail(verdict, "workers_met")
    assert "worker1 moved the global step alone" in detail(verdict, "steps_interleave")


def test_a_suspended_worker_has_no_fair_share(asleep: Path) -> None:
    verdict = verdict_of(asleep)
    assert checks(verdict, False) == {"fair_shares"}
    assert checks(verdict, None) == set()
    assert "worker1 applied" in detail(verdict, "fair_shares")
    assert "expected at least 10.0%" in detail(verdict, "fair_shares")
    assert verdict_of(asleep, minimum_share=0.001).exit_code == 0


@pytest.mark.slow
def test_the_program_needs_nothing_but_python_and_the_folder(run: Path) -> None:
    program = [sys.executable, "-S", "-m", "psfleet.evidence", str(run)]  # -S: without any installed package
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PROVEN: 2 workers trained one model together")
    assert "ok      contributions add up" in done.stdout
    written = json.loads((run / "verdict.json").read_text())
    assert written["verdict"] == "proven"

    done = subprocess.run([*program, "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == written


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.chaos), 2])
def test_a_run_that_pulls_ahead_is_proven_and_does_not_count_own_steps_as_staleness(
    tmp_path: Path, workers: int
) -> None:
    run = train(tmp_path, workers, ["--model=linear", "--steps=1000", "--pull_ahead=true"])
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", verdict.failing
    for number in range(workers):
        windows = steps_and_others(run, f"worker{number}")[0]
        behind = sum(window.get("own_steps_behind", 0) for window in windows)
        assert 0 < behind < sum(window["steps"] for window in windows)
        if workers == 1:
            assert {window["staleness_max"] for window in windows} == {0}
            moved = [window["global_step_after"] - window["global_step_before"] for window in windows]
            assert moved == [window["steps"] for window in windows]


def test_a_run_with_damped_steps_is_proven(tmp_path: Path) -> None:
    flags = ["--model=mnist_mlp", "--optimizer=adam", "--staleness=damped", "--steps=600"]
    verdict = verdict_of(train(tmp_path, 2, flags, ps=2))
    assert verdict.verdict == "proven", verdict.failing


@pytest.mark.chaos
def test_a_synchronous_run_with_tables_is_proven(tmp_path: Path) -> None:
    flags = ["--model=wide_deep", "--replication=sync", "--batch_size=256", "--steps=200"]
    verdict = verdict_of(train(tmp_path, 2, flags, ps=2))
    assert verdict.verdict == "proven", verdict.failing


@pytest.mark.parametrize(
    ("flags", "behind"),
    [
        (("--pull_every=8", "--wire_dtype=bfloat16"), True),
        pytest.param(("--replication=sync",), False, marks=pytest.mark.chaos),
        pytest.param(("--replication=in_graph",), False, marks=pytest.mark.chaos),
    ],
)
def test_a_run_with_several_batches_to_a_push_is_proven_and_counts_pushes(
    tmp_path: Path, flags: tuple[str, ...], *, behind: bool
) -> None:
    usual = ("--model=linear", "--steps=600", "--learning_rate=0.02", "--push_every=4")
    run = train(tmp_path, 2, [*usual, *flags])
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.figures["batches_in_a_step"] == 4
    gradients = 2 if "async" not in verdict.figures["replication"] else 1
    steps = sum(worker["steps"] for worker in verdict.figures["workers"].values())
    assert steps == gradients * verdict.figures["global_steps"]
    assert verdict.figures["examples"] == steps * 4 * 100
    assert (verdict.figures["staleness"]["own_steps_behind"] > 0) == behind

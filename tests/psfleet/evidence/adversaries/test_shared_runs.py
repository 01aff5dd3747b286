"""Processes that share a folder of real runs train each of them once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries import real_runs


def test_a_process_waits_for_a_run_that_another_process_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, trained = threading.Barrier(2), []

    def train(_runs: real_runs.RealRuns, folder: Path) -> Path:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)  # which is over at once where two train
        trained.append(folder)
        return folder

    monkeypatch.setattr(real_runs, "_MAKERS", {"healthy": train})
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda runs: runs.of("healthy"), [real_runs.RealRuns(tmp_path) for _ in "ab"]))
    assert found == [tmp_path / "healthy"] * 2
    assert trained == [tmp_path / "healthy"]

"""The benchmarks in small: each program trains and each figure exists; their values depend on the machine."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scaling
from benchmarks.__main__ import main
from benchmarks.network import Hosts
from benchmarks.results import CPU, SECONDS, SPEED
from benchmarks.rows import WORKLOADS
from benchmarks.tables import Tables
from tests.trainer.forked import ForkedProcess

SHORT = ["--rounds=1", "--warm_up=0", "--seconds=0.1", "--workloads=mlp"]
PROGRAMS = ("psfleet", "tutorial", "strategy", "alone", "psfleet_sync", "sync_replicas", "mirrored")


def forked(
    command: Sequence[str], environment: Mapping[str, str], output: Path, hosts: Hosts, name: str
) -> ForkedProcess:
    """Start a task without importing TensorFlow once more."""
    enter = [str(Path(__file__).with_name("in_network.py")), str(hosts.path(name))]
    return ForkedProcess([*enter, *command[1:]], output.parent, environment, output)


@pytest.mark.chaos
def test_a_failed_run_is_repeated_once(tmp_path: Path) -> None:
    started: list[str] = []

    def start(
        command: Sequence[str], environment: Mapping[str, str], output: Path, hosts: Hosts, name: str
    ) -> ForkedProcess:
        started.append(name)
        gone = ["-m", "benchmarks.programs.gone"] if len(started) == 1 else command
        return forked(gone, environment, output, hosts, name)

    assert main([*SHORT, "--longest=0", "--rows=alone", f"--folder={tmp_path}"], start) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["medians"]["mlp"]["alone"][SPEED] > 0
    (failure,) = results["failures"]
    assert failure.startswith("round 1, MLP 784-100-10, one process alone: ended: worker0")


@pytest.mark.chaos
def test_every_program_trains_and_has_every_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Even a busy machine reaches the loss within half an hour.
    arguments = [*SHORT, "--longest=1800", f"--rows={','.join(PROGRAMS)}", f"--folder={tmp_path}"]
    assert main(arguments, forked) == 0, capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    rows = results["medians"]["mlp"]
    assert tuple(rows) == PROGRAMS
    of_all = {"steps_per_second", SPEED, CPU, SECONDS, "cpu_milliseconds_per_step", "memory_of_the_lead"}
    of_all |= {"times_as_fast", "times_as_soon", "times_the_cpu"}
    of_wire = {"bytes_per_worker_and_step", "bytes_of_the_least", "worker_megabits_in"}
    of_ps = {"largest_ps_of_mean", "ps_megabits_out", "cores_of_a_ps", "memory_of_a_ps"}
    for name, figures in rows.items():
        expected = {"alone": of_all, "mirrored": of_all | of_wire}.get(name, of_all | of_wire | of_ps)
        assert expected <= {figure for figure, value in figures.items() if value}, name
        # The cores of other processes are a difference of readings, which may be below 0.
        own = (value for figure, value in figures.items() if figure != "cores_of_others")
        assert all(value > 0 for value in own if isinstance(value, float)), figures
    page = (tmp_path / "results.md").read_text()
    assert page[page.index("| MLP") :] in capsys.readouterr().out
    assert "| ParameterServerStrategy |" in page
    assert "ParameterServerStrategy" in (tmp_path / "results.svg").read_text()


@pytest.mark.chaos
@pytest.mark.parametrize("row", ["psfleet", "tutorial", "strategy", "psfleet_sync", "sync_replicas"])
def test_every_program_trains_tables(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Tables(rows=20_000, drawn=1_000, exponent=1.05)
    workloads = [replace(known, tables=few) for known in WORKLOADS if known.name == "tables"]
    monkeypatch.setattr("benchmarks.__main__.WORKLOADS", workloads)
    arguments = [*SHORT[:3], "--longest=0", f"--rows={row}", f"--folder={tmp_path}"]
    assert main(arguments, forked) == 0, capsys.readouterr().out
    figures = json.loads((tmp_path / "results.json").read_text())["medians"]["tables"][row]
    assert figures["bytes_of_the_least"] > 0
    assert figures["memory_of_a_ps"] > few.bytes_of_rows / 2


@pytest.mark.chaos
@pytest.mark.skipif(os.geteuid() != 0, reason="only root limits cores and links")
def test_workers_are_measured_beside_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = ["--models=mlp", "--workers=1", "--links=1000", "--warm_up=0", "--seconds=0.1", "--longest=1800"]
    assert scaling.main([*part, f"--folder={tmp_path}"], forked) == 0, capsys.readouterr().out
    results = json.loads((tmp_path / "scaling.json").read_text())
    assert [(run["workers"], run["megabits"]) for run in results["runs"]] == [(0, None), (1, 1000)]
    for run in results["runs"]:
        assert run["median"][SPEED] > 0
        assert run["median"][SECONDS] > 0
    page = (tmp_path / "scaling.md").read_text()
    assert "| psfleet, 1,000 Mbit/s | 1 | 0.20, " in page
    assert "- **psfleet, 1,000 Mbit/s**: 1 worker " in page
    assert "psfleet, 1,000 Mbit/s" in (tmp_path / "scaling.svg").read_text()

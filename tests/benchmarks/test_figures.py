"""The figures of a benchmark, and the cleanup after one that ends early."""

import math
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import tensorflow as tf

from benchmarks.attempts import Attempts
from benchmarks.data import examples_of
from benchmarks.figures import Figures, Sample, figures, figures_of_loss
from benchmarks.network import Hosts, Limits
from benchmarks.picture import write_picture
from benchmarks.programs.common import FedBatches, Training
from benchmarks.results import CPU, SECONDS, SPEED, medians, tables
from benchmarks.rows import ROWS, WORKLOADS, Row, Workload
from benchmarks.run import Marks, Run, Setup, slow_down
from tests.repository import ROOT
from tests.trainer.processes import until
from trainer.process import flags

MLP = WORKLOADS[0]
TWO_PS = replace(ROWS[0], ps=2)


def sample(wall: float, step: int, spent: float) -> Sample:
    """A reading of two ps and two workers that have spent so many seconds each."""
    cpu = {task: {"python": (spent, spent / 2)} for task in TWO_PS.tasks}
    moved = {
        "ps0": (100 * step, 200 * step),
        "ps1": (50 * step, 50 * step),
        "worker0": (100 * step, 50 * step),
        "worker1": (150 * step, 100 * step),
    }
    memory = {task: 1_000 * place for place, task in enumerate(TWO_PS.tasks, 1)}
    return Sample(wall, step, cpu, moved, busy=10 * spent, memory=memory)


def test_figures_are_differences_between_two_samples() -> None:
    found = figures(TWO_PS, replace(MLP, parameters=40), sample(100.0, 50, 1.0), sample(110.0, 250, 3.0))
    assert (found["seconds"], found["steps"], found["steps_per_second"]) == (10.0, 200, 20.0)
    assert found[SPEED] == 20.0 * 100
    assert found[CPU] == pytest.approx(4 * 3.0 / 20_000 * 1000)
    assert found["bytes_per_worker_and_step"] == 400  # each step is one worker's
    assert found["bytes_of_the_least"] == 400 / 320
    assert found["largest_ps_of_mean"] == 1.5
    # ps0, ps1, worker1, and worker0, which leads.
    memory = (found["memory_of_a_ps"], found["memory_of_a_worker"], found["memory_of_the_lead"])
    assert memory == (2_000, 3_000, 4_000)
    assert found["cores_of_others"] == pytest.approx((20 - 12) / 10)
    # Of the busiest link: 200 steps in 10 s.
    assert found["ps_megabits_in"] == pytest.approx(8e-6 * 100 * 20)
    assert found["ps_megabits_out"] == pytest.approx(8e-6 * 200 * 20)
    assert found["worker_megabits_in"] == pytest.approx(8e-6 * 150 * 20)
    assert found["cores_of_a_ps"] == found["cores_of_a_worker"] == pytest.approx(3.0 / 10)
    assert found["cpu_milliseconds_per_step"] == {"ps: python": [20.0, 10.0], "worker: python": [20.0, 10.0]}


def test_a_synchronous_step_learns_from_several_batches() -> None:
    row, workload = replace(TWO_PS, batches=2), replace(MLP, parameters=40)
    found = figures(row, workload, sample(100.0, 50, 1.0), sample(110.0, 250, 3.0))
    assert found["steps_per_second"] == 20.0
    assert found[SPEED] == 2 * 20.0 * 100
    assert found["bytes_per_worker_and_step"] == 200


def test_a_straggler_is_suspended_repeatedly_and_continues_afterwards() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as process:

        def is_in(state: str) -> bool:
            return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == state

        with slow_down(process, 5):
            for seen in ("T", "S", "T", "S"):
                until(partial(is_in, seen), f"state {seen}", 10)
        assert is_in("S")
        process.kill()


def is_running(process: Path) -> bool:
    """Whether it has not ended, waited for or not."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def told(speed: float, cpu: float, seconds: float = math.inf) -> Figures:
    threads = {"ps: python": [speed, 0.0]}
    return {SPEED: speed, CPU: cpu, SECONDS: seconds, "cpu_milliseconds_per_step": threads}


def test_ratios_are_computed_within_rounds_and_medians_over_rounds() -> None:
    """A round on a slow machine is slow for both rows."""
    base = {0: told(200, 1), 1: told(20, 10), 2: told(300, 1)}
    other = {0: told(100, 2), 1: told(10, 20), 2: told(100, 2), 3: told(1000, 1)}
    found = medians({"mlp": {"psfleet": base, "tutorial": other}})["mlp"]["tutorial"]
    assert found[SPEED] == 100
    assert found["range_of_speed"] == [100, 10, 1000]
    assert found["times_as_fast"] == [2.0, 2.0, 3.0]
    assert found["times_the_cpu"] == [0.5, 0.5, 0.5]
    assert found["cpu_milliseconds_per_step"] == {"ps: python": [100, 0.0]}


def test_a_synchronous_row_is_compared_with_psfleet_in_synchronous_training() -> None:
    rounds = {"psfleet": {0: told(900, 1)}, "psfleet_sync": {0: told(300, 1)}, "mirrored": {0: told(100, 1)}}
    found = medians({"mlp": rounds})["mlp"]
    assert found["mirrored"]["times_as_fast"] == [3.0, 3.0, 3.0]


def test_a_loss_that_was_not_reached_is_later_than_any_other(tmp_path: Path) -> None:
    base = {0: told(1, 1, 2.0), 1: told(1, 1, 3.0), 2: told(1, 1, 4.0)}
    other = {0: told(1, 1, 10.0), 1: told(1, 1), 2: told(1, 1, 8.0)}
    lost = {0: told(1, 1), 1: told(1, 1), 2: told(1, 1, 1.0)}
    found = medians({"mlp": {"psfleet": base, "tutorial": other, "alone": lost}})
    assert found["mlp"]["tutorial"][SECONDS] == 10.0
    assert found["mlp"]["tutorial"]["times_as_soon"] == [3.5, 2.0, 5.0]
    assert "| not reached |" in tables(found)
    write_picture(tmp_path / "results.svg", found)
    assert "seconds to loss 0.05" in (tmp_path / "results.svg").read_text()
    assert figures_of_loss(None)[SECONDS] == math.inf


def test_tables_have_a_cell_for_each_row_which_is_empty_without_a_figure() -> None:
    base = {**told(200, 1, 5.0), "cpu_milliseconds_per_step": {"ps: python": [200, 50.0]}}
    written = tables(medians({"mlp": {"psfleet": {0: base}, "alone": {0: told(100, 2, 15.0)}}}))
    figures, profile = (table.splitlines() for table in written.split("\n\n"))
    heads, _rule, first, second = figures
    assert heads.count("|") == first.count("|") == second.count("|")
    assert "| 200 | 5.0 | 1.0000 |" in first
    assert first.endswith("|  |  |")
    assert second.startswith("| one process alone |")
    assert second.endswith("| 2.00 (2.00 to 2.00) | 3.00 (3.00 to 3.00) |")
    assert profile[0] == "| MLP 784-100-10: CPU-ms of a step | psfleet | one process alone |"
    assert profile[2:] == [
        "| ps: python | 250.00 | 100.00 |",
        "| together | 250.00 | 100.00 |",
        "| of these in the kernel | 50.00 | 0.00 |",
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return examples_of(MLP, tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize(
    "known", [known for known in WORKLOADS if known.tables is None], ids=lambda its: its.name
)
def test_workloads_have_the_stated_number_of_parameters(known: Workload, data: Path) -> None:
    asked = {"job_name": "local", "data_dir": data, "batch_size": known.batch_size, **known.flags}
    training = Training(flags.parse([f"--{name}={value}" for name, value in asked.items()]))
    with tf.Graph().as_default():
        assert sum(variable.shape.num_elements() for variable in training.variables()) == known.parameters
    assert training.batch_size == known.batch_size


def test_fed_batches_contain_every_example_once_in_an_epoch(data: Path) -> None:
    training = Training(flags.parse(["--job_name=local", f"--data_dir={data}"]))
    examples = training.examples
    assert examples.features.shape == (10_000, 784)
    fed = FedBatches(examples, 100, seed=1)
    epochs = [[fed.next_batch() for _ in range(100)] for _ in range(2)]
    sums = [sorted(float(row.sum()) for features, _ in epoch for row in features) for epoch in epochs]
    assert sums[0] == sums[1] == sorted(float(row.sum()) for row in examples.features)
    assert (epochs[0][0][1] != epochs[1][0][1]).any()


def sent_between_hosts(hosts: Hosts, count: int) -> tuple[int, int, float]:
    """Send bytes from host b to host a; return what a received and b sent, and the seconds."""
    code = "import socket; s = socket.create_server(('', 2222)); print(flush=True); s = s.accept()[0]\n"
    listener = subprocess.Popen(
        [*hosts.inside("a"), sys.executable, "-c", f"{code}while s.recv(65536): pass"],
        stdout=subprocess.PIPE,
    )
    assert listener.stdout
    listener.stdout.readline()
    host, before, began = hosts.addresses["a"].partition(":")[0], hosts.counters(), time.monotonic()
    code = f"import socket; socket.create_connection(({host!r}, 2222)).sendall(bytes({count}))"
    subprocess.run([*hosts.inside("b"), sys.executable, "-c", code], check=True)
    listener.communicate()
    seconds, after = time.monotonic() - began, hosts.counters()
    assert after.keys() == {"a", "b"}
    return after["a"][0] - before["a"][0], after["b"][1] - before["b"][1], seconds


def test_counters_contain_the_bytes_to_and_from_a_host() -> None:
    with Hosts(["a", "b"]) as hosts:
        received, sent, _ = sent_between_hosts(hosts, 1_000_000)
    assert 1_000_000 < received < 1_100_000
    assert 1_000_000 < sent < 1_100_000


def test_a_limited_link_carries_no_more_than_its_speed() -> None:
    with Hosts(["a", "b"], Limits(megabits=8)) as hosts:
        received, _, seconds = sent_between_hosts(hosts, 1_000_000)
    assert received > 1_000_000
    assert 8 * received / 1e6 < 8 * seconds + 0.4  # what fits into a bucket passes at once


def test_a_killed_benchmark_leaves_no_process() -> None:
    code = (
        "import subprocess, time\nfrom benchmarks.network import Hosts\n"
        "hosts = Hosts(['a']).__enter__()\n"
        "task = subprocess.Popen([*hosts.inside('a'), 'sleep', '600'])\n"
        "holders = [holder.pid for holder in hosts._holders.values()]\n"
        "print(task.pid, *holders, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as benchmark:
        assert benchmark.stdout
        started = [Path(f"/proc/{int(pid)}") for pid in benchmark.stdout.readline().split()]
        assert len(started) == 3
        benchmark.send_signal(signal.SIGKILL)
    until(lambda: not any(map(is_running, started)), "the end of all that it started", 10)


def test_a_program_that_ends_is_a_failed_run_with_its_last_lines_and_leaves_no_files(tmp_path: Path) -> None:
    row = Row("gone", "no such program", "benchmarks.programs.gone", workers=0)
    attempts = Attempts(Marks(0, 0, 0))
    run_in = partial(Run, Setup(row, MLP), data=tmp_path)
    assert attempts.measure("here", tmp_path / "run", run_in) is None
    for failure in attempts.failures:
        assert re.match(r"(?s)here: ended: worker0.*No module named benchmarks.programs.gone", failure)
    assert len(attempts.failures) == 2
    assert list(tmp_path.iterdir()) == []

"""Event files for TensorBoard are read back: scalars, the graph, restarts, and a disk that is full."""

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from trainer.task import summaries as summaries_module
from trainer.task.summaries import Summaries

v1 = tf.compat.v1


@pytest.fixture
def graph() -> tf.Graph:
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, name="one_of_ours")
    return graph


def _events(directory: Path, task: str) -> Iterator[Any]:
    for path in sorted((directory / "summaries" / task).iterdir()):
        assert path.name.startswith("events.out.tfevents.")
        yield from v1.train.summary_iterator(str(path))


def _scalars(directory: Path, task: str) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, value.simple_value)
        for event in _events(directory, task)
        for value in event.summary.value
    ]


def test_scalars_are_on_disk_as_soon_as_they_are_written(tmp_path: Path, graph: tf.Graph) -> None:
    summaries = Summaries(tmp_path, "worker1", graph, 10)
    assert [step for step in range(1, 31) if summaries.is_due(step)] == [10, 20, 30]
    summaries.write(21, {"loss": 0.5, "accuracy": 0.25})
    summaries.write(40, {"loss": 0.125})
    assert _scalars(tmp_path, "worker1") == [(21, "loss", 0.5), (21, "accuracy", 0.25), (40, "loss", 0.125)]
    for event in _events(tmp_path, "worker1"):
        assert abs(event.wall_time - time.time()) < 60
    summaries.close()


def test_only_the_chief_evaluates_while_all_workers_train(real_runs: RealRuns) -> None:
    tasks = real_runs.tasks_of("noisy")
    tags = [{tag for _, tag, _ in _scalars(tasks.directory(task), task)} for task in ("worker0", "worker1")]
    own = {"loss", "steps_per_second"}
    assert tags == [own | {"test/weight", "test/bias", "test/loss"}, own]


@pytest.mark.parametrize(("task", "graphs"), [("worker0", 1), ("worker1", 0)])
def test_the_chief_writes_the_graph_once_in_a_run(
    tmp_path: Path, graph: tf.Graph, task: str, graphs: int
) -> None:
    for global_step in (10, 20):
        process = Summaries(tmp_path, task, graph, 1)
        process.write(global_step, {"loss": 1.0})
        process.close()
    definitions = [event.graph_def for event in _events(tmp_path, task) if event.graph_def]
    assert len(definitions) == graphs
    assert all(b"one_of_ours" in definition for definition in definitions)


def test_a_restarted_task_continues_in_a_new_event_file(tmp_path: Path, graph: tf.Graph) -> None:
    for steps in ((10, 20, 30), (21, 31)):
        process = Summaries(tmp_path, "worker0", graph, 1)
        for global_step in steps:
            process.write(global_step, {"loss": global_step / 10})
        process.close()
    assert len(list((tmp_path / "summaries/worker0").iterdir())) == 2
    assert _as_tensorboard_shows(tmp_path, "worker0") == [10, 20, 21, 31]


def test_a_restore_in_the_same_process_hides_the_later_steps(tmp_path: Path, graph: tf.Graph) -> None:
    summaries = Summaries(tmp_path, "worker0", graph, 1)
    for global_step in (10, 20, 30, 15, 25):
        summaries.write(global_step, {"loss": 1.0})
    assert _as_tensorboard_shows(tmp_path, "worker0") == [10, 15, 25]
    summaries.close()


def _as_tensorboard_shows(directory: Path, task: str) -> list[int]:
    """The steps of the line `loss`: a session log that starts at a step drops this step and those after."""
    steps: list[int] = []
    for event in _events(directory, task):
        if event.session_log.status == v1.SessionLog.START:
            steps = [step for step in steps if step < event.step]
        steps += [event.step for value in event.summary.value if value.tag == "loss"]
    return steps


def test_a_folder_that_cannot_be_created_is_reported_once(
    tmp_path: Path, graph: tf.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "summaries").write_text("a file where the folder should be")
    summaries = Summaries(tmp_path, "worker0", graph, 1)
    for global_step in range(3):
        summaries.write(global_step, {"loss": 1.0})
    summaries.close()
    printed = capsys.readouterr().out
    assert printed.count("Summaries cannot be written, training goes on without") == 1
    assert str(tmp_path / "summaries/worker0") in printed


def test_a_full_disk_is_reported_once_and_earlier_events_stay_readable(
    tmp_path: Path, graph: tf.Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries_module, "_SECONDS_BETWEEN_TRIES", 0.0)
    summaries = Summaries(tmp_path, "worker1", graph, 1)
    for global_step in range(100):
        summaries.write(global_step, {"loss": 1.0})
    (file,) = (tmp_path / "summaries/worker1").iterdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, limits[1]))
    try:
        summaries.write(100, {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    summaries.write(101, {"loss": 1.0})
    assert capsys.readouterr().out.count("Summaries cannot be written") == 1
    assert _as_tensorboard_shows(tmp_path, "worker1") == [*range(100), 101]
    summaries.close()


def test_no_summaries_are_written_without_a_directory_or_an_interval(tmp_path: Path, graph: tf.Graph) -> None:
    for summaries in (Summaries(None, "worker0", graph, 10), Summaries(tmp_path, "worker0", graph, 0)):
        assert not summaries.is_due(10)
        summaries.write(10, {"loss": 1.0})
        summaries.close()
    assert list(tmp_path.iterdir()) == []


def test_a_long_run_writes_summaries_less_and_less_often(
    tmp_path: Path, graph: tf.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summaries_module, "_SUMMARIES_BEFORE_DOUBLING", 4)
    summaries = Summaries(tmp_path, "worker1", graph, 10)
    for local_step in range(1, 1000):
        if summaries.is_due(local_step):
            summaries.write(local_step, {"loss": 1.0})
    steps = [step for step, _, _ in _scalars(tmp_path, "worker1")]
    assert steps == [10, 20, 30, 40, 60, 80, 100, 120, 160, 200, 240, 280, 320, 400, 480, 560, 640, 800, 960]
    summaries.close()

"""A process beside the chief evaluates checkpoints during the run, and may end it before its last step."""

import json
import os
import signal
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import CONFIGURATION, FINISHED
from trainer.contract.model_files import MODELS, built_in_card
from trainer.contract.records import Record, events_file, read_records
from trainer.model.checkpoints import checkpoint_paths, read_checkpoint

LINEAR = ("--model=linear", "--learning_rate=0.002", "--evaluate_every_steps=100")
STOPS = (*LINEAR, "--steps=1000000", "--stop_when=loss<40")


def of_evaluator(cluster: Cluster, event: str) -> list[Record]:
    """Return the evaluator's records of an event; none before it wrote any."""
    file = events_file(cluster.directory("worker0"), "evaluator", 0)
    return [record for record in read_records(file)[0] if record.event == event] if file.exists() else []


def losses(cluster: Cluster) -> list[float]:
    """Return the loss of each evaluation."""
    return [
        float(found["loss"])
        for record in of_evaluator(cluster, "evaluated")
        if isinstance(found := record.fields["metrics"], dict)
    ]


def train(folder: Path, flags: Sequence[str], workers: int = 2, *tasks: str) -> Cluster:
    """Return a cluster whose tasks have ended well; their steps leave the cores to the evaluations."""
    with Cluster(folder, 1, workers, flags, program=PAUSING) as cluster:
        cluster.start(*tasks)
        assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
    return cluster


@pytest.mark.parametrize("replication", few(["async", "sync", "in_graph", "local"], "async"))
def test_a_run_ends_in_order_once_an_evaluation_meets_the_condition(tmp_path: Path, replication: str) -> None:
    alone = ("worker0",) if replication == "local" else ()
    cluster = train(tmp_path, (*STOPS, f"--replication={replication}"), 2, *alone)
    found = losses(cluster)
    assert found[-1] < 40 <= min(found[:-1], default=40)
    chief = cluster.only("worker0", "finished")
    step = chief.integer("global_step")
    assert chief.text("reason") == "stop_when met"
    assert of_evaluator(cluster, "evaluated")[-1].integer("global_step") <= chief.integer("last_step") <= step
    gradients = 2 if replication in {"sync", "in_graph"} else 1
    assert sum(chief.integers("contributions").values()) == step * gradients
    clients = ["worker0", "worker1"] if replication in {"async", "sync"} else ["worker0"]
    cluster.assert_one_fingerprint(*clients)
    assert {cluster.only(client, "finished").text("reason") for client in clients} == {"stop_when met"}
    assert cluster.progress()["phase"] == "finished"
    assert f"The run ends: loss < 40 is met, loss was {found[-1]:.6g}." in cluster.output("worker0")
    assert of_evaluator(cluster, "finished")[-1].text("reason") == "run over"


@pytest.mark.chaos
def test_a_resumed_run_that_had_ended_early_is_over_until_it_has_no_condition(tmp_path: Path) -> None:
    cluster = train(tmp_path, STOPS)
    step = cluster.only("worker0", "finished").integer("global_step")
    cluster.start()
    assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
    for worker in ("worker0", "worker1"):
        again = cluster.records(worker, "finished")[-1]
        assert (again.integer("global_step"), again.integer("local_step")) == (step, 0)
        assert again.text("reason") == "stop_when met"
    cluster.assert_one_fingerprint("worker0", "worker1")
    goes_on = ["--stop_when=", f"--steps={step + 100}"]
    cluster.start(flags=goes_on)
    assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
    assert cluster.records("worker0", "finished")[-1].integer("global_step") >= step + 100


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A run with evaluations on its way to its last step; the folder is nobody's to change."""
    flags = (*LINEAR, "--steps=1500", "--checkpoints_to_keep=1000", "--checkpoint_interval_steps=40")
    folder = tmp_path_factory.mktemp("evaluated")
    with Cluster(folder, 1, 2, flags) as cluster:
        cluster.start()
        # The steps wait for the first evaluation, however busy the machine is.
        cluster.until(lambda: cluster.global_step() > 0, "steps")
        cluster.signal("worker0", signal.SIGSTOP)
        cluster.signal("worker1", signal.SIGSTOP)
        cluster.until(lambda: bool(of_evaluator(cluster, "started")), "the process that evaluates")
        cluster.signal("worker0", signal.SIGCONT)
        cluster.signal("worker1", signal.SIGCONT)
        assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
    return cluster


def test_evaluations_are_a_series_over_the_global_step_of_checkpoints_as_they_were_saved(
    evaluated: Cluster,
) -> None:
    found = of_evaluator(evaluated, "evaluated")
    steps = [record.integer("global_step") for record in found]
    assert len(steps) >= 2
    assert min(later - one for one, later in pairwise(steps)) >= 100, steps
    saved = {
        record.integer("global_step"): record.text("fingerprint")
        for record in evaluated.records("worker0", "checkpointed")
    }
    assert [record.text("fingerprint") for record in found] == [saved[step] for step in steps]
    for record, loss in zip(found, losses(evaluated), strict=True):
        path = evaluated.directory("worker0") / f"checkpoints/model.ckpt-{record.integer('global_step')}"
        checkpoint, problem = read_checkpoint(path)
        assert checkpoint, problem
        weight, bias = (float(checkpoint.values[name]) for name in ("weight", "bias"))
        # y = 2x + 10 for x from -1 to 1, with noise of 0.33.
        assert loss == pytest.approx((weight - 2) ** 2 / 3 + (bias - 10) ** 2 + 0.33**2, rel=0.1)
    assert losses(evaluated) == sorted(losses(evaluated), reverse=True)
    assert evaluated.progress()["evaluation"] == {
        "global_step": steps[-1],
        "metrics": found[-1].fields["metrics"],
    }


def test_tensorboard_has_the_series_as_that_of_a_task_of_its_own(evaluated: Cluster) -> None:
    (file,) = (evaluated.directory("worker0") / "summaries" / "evaluator0").iterdir()
    shown = {
        event.step: value.simple_value
        for event in tf.compat.v1.train.summary_iterator(str(file))
        for value in event.summary.value
        if value.tag == "test/loss"
    }
    found = of_evaluator(evaluated, "evaluated")
    steps = [record.integer("global_step") for record in found]
    assert shown == pytest.approx(dict(zip(steps, losses(evaluated), strict=True)))


def test_the_evaluating_process_is_nobody_of_the_run_and_ends_with_it(evaluated: Cluster) -> None:
    (started,) = of_evaluator(evaluated, "started")
    tasks = [evaluated.only(task, "started") for task in evaluated.tasks]
    assert started.integer("nonce") not in {task.integer("nonce") for task in tasks}
    assert started.pid not in {task.pid for task in tasks}
    assert not Path(f"/proc/{started.pid}").exists()
    settings = started.fields["settings"]
    assert isinstance(settings, dict)
    assert settings["threads"] == 1


def test_a_killed_evaluating_process_is_replaced_while_training_goes_on(tmp_path: Path) -> None:
    flags = (*LINEAR, "--steps=1000000")
    with Cluster(tmp_path, 1, 1, flags, program=PAUSING) as cluster:
        cluster.start()
        cluster.until(lambda: bool(losses(cluster)), "an evaluation")
        (first,) = of_evaluator(cluster, "started")
        os.kill(first.pid, signal.SIGKILL)
        cluster.until(lambda: len(of_evaluator(cluster, "started")) == 2, "another process")
        other = of_evaluator(cluster, "started")[-1].pid
        cluster.until(
            lambda: any(record.pid == other for record in of_evaluator(cluster, "evaluated")),
            "its evaluation",
        )
        assert "has ended, exit code -9" in cluster.output("worker0")
        # A chief that is killed leaves no process behind.
        cluster.signal("worker0", signal.SIGKILL)
        cluster.until(lambda: not Path(f"/proc/{other}").exists(), "the end of the process that evaluates")


def test_a_process_that_ends_again_and_again_is_given_up_and_training_goes_on(tmp_path: Path) -> None:
    flags = (*LINEAR, "--steps=1000000")
    with Cluster(tmp_path, 1, 1, flags, program=PAUSING) as cluster:
        cluster.start()
        for number in range(1, 4):
            cluster.until(lambda of=number: len(of_evaluator(cluster, "started")) == of, f"process {number}")  # type: ignore[misc]
            os.kill(of_evaluator(cluster, "started")[-1].pid, signal.SIGKILL)
            cluster.until(
                lambda of=number: cluster.output("worker0").count("exit code -9") == of,  # type: ignore[misc]
                f"the chief to see end {number}",
            )
        cluster.until(lambda: "this run is not evaluated" in cluster.output("worker0"), "the last word")
        cluster.until_steps(200)
        assert len(of_evaluator(cluster, "started")) == 3


def test_a_metric_that_a_model_of_ones_own_lacks_ends_the_run_and_those_it_has_are_named(
    tmp_path: Path,
) -> None:
    # The card is checked before a run: here it names a metric that only an evaluation shows to be absent.
    flags = ("--model=linear", "--steps=1000000", "--evaluate_every_steps=100", "--stop_when=auc>0.7")
    program = [str(_with_another_metric(tmp_path))]
    with Cluster(tmp_path, 1, 1, flags) as cluster:
        cluster.start(program=program)
        assert cluster.wait("worker0") == {"worker0": CONFIGURATION}, cluster.outputs()
        reason = cluster.only("worker0", "failed").text("reason")
    assert reason == (
        "trainer_stop_when (--stop_when) is 'auc > 0.7'; expected a metric of the model: bias, loss, weight"
    )


def _with_another_metric(folder: Path) -> Path:
    """Return a trainer whose card of `linear` has a metric that the model lacks."""
    program = folder / "own_model.py"
    program.write_text(
        "import runpy, sys\n"
        "import tests.trainer.pausing_program\n"
        "from trainer.contract.model_files import built_in_card\n"
        "built_in_card('linear').metrics['auc'] = 'higher'\n"
        "runpy.run_module('trainer', run_name='__main__', alter_sys=True)\n"
    )
    return program


def test_the_newest_checkpoints_are_kept_as_without_evaluations(tmp_path: Path) -> None:
    cluster = train(tmp_path, (*STOPS, "--checkpoints_to_keep=2"), 1)
    assert len(checkpoint_paths(cluster.directory("worker0") / "checkpoints")) == 2


def test_an_evaluation_has_the_rows_that_the_ps_saved(tmp_path: Path) -> None:
    flags = ("--model=wide_deep", "--table_rows=20000", "--batch_size=10", "--steps=1000000")
    ends = ("--evaluate_every_steps=20", "--stop_when=auc>0.1")
    with Cluster(tmp_path, 2, 1, (*flags, *ends), program=PAUSING) as cluster:
        cluster.start()
        assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
    saved = {
        record.integer("global_step"): record.text("fingerprint")
        for record in cluster.records("worker0", "checkpointed")
    }
    (found,) = of_evaluator(cluster, "evaluated")
    assert found.text("fingerprint") == saved[found.integer("global_step")]
    assert cluster.only("worker0", "finished").text("reason") == "stop_when met"


@pytest.mark.parametrize("model", few(MODELS, "linear", "wide_deep"))
def test_what_is_known_of_the_models_metrics_is_what_an_evaluation_finds(tmp_path: Path, model: str) -> None:
    # The model `partition` has a part for each worker.
    alone = [] if model == "partition" else ["worker0"]
    flags = [f"--model={model}", "--steps=2", "--table_rows=20000", "--batch_size=10"]
    found = train(tmp_path, [*flags, *(["--replication=local"] if alone else [])], 2, *alone).metrics()
    card = built_in_card(model)
    assert card is not None
    assert set(card.metrics) <= set(found), json.dumps(found)

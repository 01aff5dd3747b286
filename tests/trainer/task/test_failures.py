"""A failed run ends all its tasks, with the class of the failure, its reason and the failed task."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.repository import ROOT
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION, GIVEN_UP, INPUT, PROGRAM
from trainer.task.gradient_samples import FIRST_SAMPLES

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
LINEAR = ["--model=linear", "--steps=400"]


def test_a_loss_that_is_not_finite_ends_the_run(real_runs: RealRuns) -> None:
    tasks = real_runs.tasks_of("diverged")  # with the exit code for that, all of them
    for task in ("ps0", "worker0", "worker1"):
        failed = tasks.only(task, "failed")
        assert failed.text("class") == "diverged"
        where = r"at local step \d+, global step \d+"
        assert re.search(rf"loss is (nan|inf) {where}; the learning rate is 1e\+30", failed.text("reason"))
    assert re.match(r"worker[01]: loss is", tasks.only("ps0", "failed").text("reason"))
    assert tasks.progress()["phase"] == "failed"
    # None but that of the first values.
    saved = tasks.directory("worker0").glob("checkpoints/model.ckpt-*.index")
    assert [path.name for path in saved] == ["model.ckpt-0.index"]


def test_an_exception_in_the_program_is_named_by_its_last_lines(tmp_path: Path) -> None:
    program = [str(ROOT / "tests" / "trainer" / "broken_program.py")]
    with Cluster(tmp_path, workers=1, flags=[*LINEAR, "--steps_per_call=1"]) as cluster:
        cluster.start("ps0")
        cluster.start("worker0", program=program)
        assert cluster.wait() == {"ps0": PROGRAM, "worker0": PROGRAM}
        for task in cluster.tasks:
            failed = cluster.only(task, "failed")
            assert failed.text("class") == "program"
            assert "ValueError: the tenth step has a bug" in failed.text("reason")
        samples = cluster.records("worker0", "gradients")  # a slow worker may take one more
        steps = FIRST_SAMPLES + 9 - len(samples)
        assert cluster.records("worker0", "step")[-1].integer("local_step") == steps


def test_a_task_without_progress_is_given_up_until_people_start_it_again(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=1, flags=LINEAR) as cluster:
        for task in cluster.tasks:
            lives = cluster.directory(task) / "endings" / f"{task}.lives.json"
            lives.parent.mkdir(parents=True)
            lives.write_text('{"in_vain": 6}')
        cluster.start()
        assert cluster.wait() == {"ps0": GIVEN_UP, "worker0": GIVEN_UP}
        for task in cluster.tasks:
            assert cluster.only(task, "failed").text("class") == "given_up"
        lives.write_text('{"in_vain": 5}')
        cluster.start(flags=["--steps=1000000"])
        cluster.until_steps(1)
        cluster.until(lambda: '"in_vain": 0' in lives.read_text(), "the worker to get on")


@as_root
@pytest.mark.parametrize("is_stopped", [False, True], ids=["at its end", "stopped"])
def test_a_run_fails_if_its_last_checkpoint_cannot_be_saved(tmp_path: Path, is_stopped: bool) -> None:
    steps = 10_000_000 if is_stopped else 50
    with Cluster(tmp_path, workers=2, flags=["--model=linear", f"--steps={steps}"]) as cluster:
        full = cluster.directory("worker0") / "checkpoints"
        cluster.start(
            "worker0", program=[str(ROOT / "tests" / "trainer" / "full_disk_program.py"), str(full)]
        )
        cluster.start("ps0", "worker1")
        if is_stopped:
            cluster.until_steps(1)
            cluster.signal("worker0", signal.SIGTERM)
        # Worker 1 has done its work by then.
        codes = cluster.wait()
        assert (codes["ps0"], codes["worker0"]) == (INPUT, INPUT)
        failed = cluster.only("worker0", "failed")
        assert failed.text("class") == "input"
        reason = failed.text("reason")
        assert re.match(r"the last checkpoint, of global step [1-9]\d*, is not saved: ", reason)
        assert "No space left on device" in reason
        assert cluster.records("worker0", "checkpoint_failed")
        assert cluster.only("ps0", "failed").text("reason") == f"worker0: {reason}"


def test_bad_data_damaged_checkpoints_and_different_settings_end_the_run_with_the_reason(
    tmp_path: Path,
) -> None:
    mnist, differ, damaged = tmp_path / "mnist", tmp_path / "differ", tmp_path / "damaged"
    for folder in (mnist, differ, damaged):
        folder.mkdir()
    with (
        Cluster(mnist, workers=1) as cluster,
        Cluster(differ, flags=["--model=linear"]) as other,
        Cluster(damaged, workers=1, flags=LINEAR) as third,
    ):
        checkpoint = third.directory("worker0") / "checkpoints" / "model.ckpt-200.index"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.write_bytes(b"damaged")
        third.start()
        cluster.start("ps0")
        cluster.start("worker0", flags=[f"--data_dir={mnist}"])
        other.start("ps0")
        other.start("worker0", flags=["--steps=400"])
        other.start("worker1", flags=["--steps=500"])
        assert cluster.wait() == {"ps0": INPUT, "worker0": INPUT}
        assert other.wait() == {"ps0": CONFIGURATION, "worker0": CONFIGURATION, "worker1": CONFIGURATION}
        assert third.wait() == {"ps0": INPUT, "worker0": INPUT}
        refusal = third.only("worker0", "failed").text("reason")
        assert "are damaged (damaged-model.ckpt-200), so the run cannot go on" in refusal
        assert third.only("ps0", "failed").text("reason") == f"worker0: {refusal}"
        assert not third.records("worker0", "initialised")
        reason = cluster.only("worker0", "failed").text("reason")
        assert f"{mnist} has none of train-images-idx3-ubyte, train-images-idx3-ubyte.gz" in reason
        assert cluster.only("ps0", "failed").text("reason") == f"worker0: {reason}"
        for task in other.tasks:
            failed = other.only(task, "failed")
            assert failed.text("class") == "configuration"
            assert re.search(r"worker[01] and worker[01] differ in steps", failed.text("reason"))


def test_a_worker_that_fails_after_another_ended_the_run_keeps_its_own_reason(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=3, flags=[f"--data_dir={tmp_path}"]) as cluster:
        cluster.start("ps0", "worker1")
        # The ps holds the stop code of worker 1 for some seconds: only the chief would end the ps at once.
        cluster.until(lambda: cluster.has_ended("worker1"), "the end of worker 1")
        cluster.start("worker2")
        assert cluster.wait() == {"ps0": INPUT, "worker1": INPUT, "worker2": INPUT}
        for worker in ("worker1", "worker2"):
            failed = cluster.only(worker, "failed")
            assert failed.text("class") == "input"
            assert f"{tmp_path} has none of" in failed.text("reason")
            assert "Traceback" not in cluster.output(worker)

"""The records that a program writes itself: in a run, without psfleet, and beside modules of any name."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.program.launched import PLAN_HASH, RUN_ID, Tasks, program, run_alone
from trainer.contract.exit_codes import FINISHED, PROGRAM
from trainer.contract.record_fields import record_problems
from trainer.program.launcher import LIBRARY

STEPS = 5000

TRAIN = f"""
    import sys, time
    import psfleet_records
    assert "tensorflow" not in sys.modules
    psfleet_records.started(last_step={STEPS}, learning_rate=0.5, layers=(3, 4))
    for step in range(1, {STEPS} + 1):
        psfleet_records.step(2 * step, 1 / step, examples=10)
    psfleet_records.evaluated(2 * step, accuracy=0.75)
    psfleet_records.checkpointed(2 * step, "checkpoints/model", seconds=0.5)
    psfleet_records.finished()
    print("written")
"""


def test_a_program_writes_records_and_progress(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TRAIN), ps=1, worker=2) as tasks:
        tasks.start("worker0", "worker1")
        assert tasks.wait() == {"worker0": FINISHED, "worker1": FINISHED}
        for worker in ("worker0", "worker1"):
            started, finished = tasks.records(worker, "started")[0], tasks.records(worker, "finished")[0]
            assert (started.run_id, started.plan_hash, started.release) == (RUN_ID, PLAN_HASH, "beef")
            assert started.text("address") == tasks.cluster["worker"][int(worker[-1])]
            assert started.fields["settings"] == {"learning_rate": 0.5, "layers": [3, 4]}
            assert started.text("program") == "c0ffee"
            windows = tasks.records(worker, "step")
            # Small ones at first, for that is where the loss of a small model falls.
            assert [window.integer("steps") for window in windows[:25]] == [1] * 25
            assert 250 <= len(windows) <= 300
            assert sum(window.integer("steps") for window in windows) == STEPS
            assert sum(window.integer("examples") for window in windows) == 10 * STEPS
            # The task saw the global step rise by two with each of its own: every other step was another's.
            assert windows[1].integer("global_step_before") == windows[0].integer("global_step_after")
            assert windows[-1].integer("global_step_after") == finished.integer("global_step") == 2 * STEPS
            assert "staleness_mean" not in windows[0].fields
            assert finished.integer("local_step") == STEPS
        nonces = {tasks.records(name, "started")[0].integer("nonce") for name in ("worker0", "worker1")}
        assert len(nonces) == 2
        progress = tasks.progress("worker0")
        told = {"phase": "finished", "global_step": 2 * STEPS, "last_step": STEPS, "loss": 1 / STEPS}
        assert progress == progress | told
        assert tasks.progress("worker1") == {}
        assert not (tasks.directory("worker1") / "progress.json").exists()


def test_progress_is_written_twice_a_second_while_the_program_trains(tmp_path: Path) -> None:
    text = """
        import json, pathlib, types, psfleet_records
        clock = types.SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
        psfleet_records.time = clock
        psfleet_records.started(last_step=1000)
        told = []
        for step in range(1, 31):
            clock.now += 0.125
            psfleet_records.step(step, 0.5, examples=1)
            progress = json.loads(pathlib.Path("progress.json").read_text())
            told.append((progress["phase"], progress["global_step"]))
        print(sorted(set(told)))
        raise ValueError("not the last step")
    """
    tasks = run_alone(tmp_path, text, PROGRAM)
    assert f"{[('training', step) for step in range(0, 30, 4)]}\n" in tasks.output("worker0")
    # The end of the process writes the counted steps, although the program did not call finished.
    progress = tasks.progress("worker0")
    assert (progress["global_step"], progress["phase"]) == (30, "failed")
    assert sum(window.integer("steps") for window in tasks.records("worker0", "step")) == 30
    assert tasks.records("worker0", "finished") == []


def test_without_a_run_the_library_writes_and_prints_nothing(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, program(tmp_path, TRAIN)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(LIBRARY), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "written\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["main.py"]


def test_a_program_may_have_modules_of_any_name(tmp_path: Path) -> None:
    code = tmp_path / "code"
    for name in ("trainer/__init__", "trainer/records", "records", "systemd", "keras_layers"):
        program(code, f"WHO = 'mine: {name}.py'", f"{name}.py")
    text = """
        import psfleet_records
        import keras_layers, records, systemd, trainer, trainer.records
        assert records.WHO == "mine: records.py"
        assert trainer.WHO == "mine: trainer/__init__.py"
        assert trainer.records.WHO == "mine: trainer/records.py"
        psfleet_records.started()
        psfleet_records.step(1)
        psfleet_records.finished("run over")
    """
    with Tasks(tmp_path, program(code, text), worker=1) as tasks:
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
        step = tasks.records("worker0", "step")[0]
        assert step.integer("examples") == 0
        assert "loss" not in step.fields  # not recorded: null would be a non-finite loss
        assert tasks.records("worker0", "finished")[0].text("reason") == "run over"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("step(-1)", "global_step is -1, expected an integer >= 0"),
        ("step(1.5)", "global_step is 1.5, expected an integer >= 0"),
        ("started(last_step=None)", "last_step is None, expected an integer >= 0"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(tmp_path: Path, call: str, said: str) -> None:
    text = f"import psfleet_records; psfleet_records.{call}"
    tasks = run_alone(tmp_path, text, PROGRAM)
    assert tasks.progress("worker0")["reason"] == f"ValueError: {said}"


def test_records_of_a_program_need_fewer_fields_than_those_of_the_trainer() -> None:
    whose = {
        "run_id": "r",
        "job": "worker",
        "index": 0,
        "host": "h",
        "pid": 1,
        "plan_hash": "",
        "release": "",
    }
    when = {"wall": 1.0, "monotonic": 1.0}
    finished = {"v": 1, "event": "finished", **whose, **when, "reason": "last step"}
    assert record_problems({**finished, "program": "c0ffee"}) == []
    assert "finished: contributions is missing" in record_problems(finished)


def test_a_program_may_remove_tf_config_from_its_environment(tmp_path: Path) -> None:
    after = """
        import os, psfleet_records
        del os.environ["TF_CONFIG"]
        psfleet_records.started()
    """
    before = """
        import os
        del os.environ["TF_CONFIG"]
        import psfleet_records
        psfleet_records.started()
    """
    for name, text in {"after": after, "before": before}.items():
        folder = tmp_path / name
        folder.mkdir()
        tasks = run_alone(folder, text)
        address = tasks.cluster["worker"][0] if name == "after" else ""
        assert tasks.records("worker0", "started")[0].text("address") == address


def test_steps_of_several_threads_are_recorded_and_a_new_phase_counts_from_its_start(tmp_path: Path) -> None:
    text = """
        import threading, psfleet_records
        psfleet_records.started(last_step=100)
        psfleet_records.step(0)  # fetched with the step, and before it
        psfleet_records.step(2)
        psfleet_records.started(last_step=9000)
        psfleet_records.step(100)
        for late in (99, 98):  # the second thread gets the ident of the first, which has ended
            slow = threading.Thread(target=psfleet_records.step, args=[late])
            slow.start()
            slow.join()
        def tell(of):
            for number in range(1000):
                psfleet_records.step(101 + 4 * number + of)
        threads = [threading.Thread(target=tell, args=[of]) for of in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        psfleet_records.finished()
    """
    tasks = run_alone(tmp_path, text)
    told = [
        (window.integer("steps"), window.integer("global_step_before"), window.integer("global_step_after"))
        for window in tasks.records("worker0", "step")
    ]
    assert told[:5] == [(1, 0, 0), (1, 0, 2), (1, 2, 100), (1, 100, 100), (1, 100, 100)]
    assert [window.integer("unplaced") for window in tasks.records("worker0", "step")][:5] == [1, 1, 1, 2, 2]
    # A thread with a lower step than another takes no steps back, and no step is lost.
    reached = [after for _, _, after in told]
    assert reached == sorted(reached)
    assert reached[-1] == 4100
    assert sum(steps for steps, _, _ in told[2:]) == 4003
    assert tasks.only("worker0", "finished").integer("local_step") == 4003

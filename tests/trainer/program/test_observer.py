"""The observer records a program that does not know psfleet, without changing it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT
from tests.trainer.program.launched import Tasks, program, run_alone
from trainer.contract.exit_codes import FINISHED, PROGRAM
from trainer.contract.records import events_file, read_records
from trainer.program import launcher

# Graph -> the losses of its steps; None for an unknown loss.
STEPS: dict[str, list[float | None]] = {
    "minimised": [1.0, 0.64, 0.4096],
    "behind_a_group": [1.0, 0.81, 0.5041],
    "two_optimizers": [1.0, None, None],
    "counted_apart": [1.0],
    "with_an_input_that_the_gradient_does_not_need": [None, None],
    "as_callables": [1.0, 3.24, 0.1936, 1.8279],
    "by_gradients": [1.0],
    "two_counters": [1.0, None, 0.64],
    "without_a_step": [1.0],
    "scattered": [1.0],
    "rows_of_a_table": [1.0],
    "made_up": [None],
    "of_zeros": [1.0, 1.0],
    "in_a_condition": [1.0, None],
    "in_a_condition_of_its_time": [1.0, None],
    "grown": [1.0, 0.64],
    "by_a_tape": [1.0],
    "in_threads": [1.0] * 60,
    "that_fails": [1.0],
    "with_a_loss_scale": [1.0],
    "after_updates": [1.0, 0.64],
    "slow_to_prepare": [1.0] * 110,
    "broken": [],
}
# Records of the graph other than the weight and the global step: names of variables, counters, doubts.
MORE: dict[str, tuple[str, str, str]] = {
    "two_optimizers": ("one/weight other/weight", "global_step", ""),
    "two_counters": ("one/weight other/weight", "one/global_step other_step", ""),
    "without_a_step": ("weight head", "global_step", ""),
    "scattered": ("weight table", "global_step", ""),
    "rows_of_a_table": ("table/part_0 table/part_1", "global_step", ""),
    "made_up": ("weight", "global_step", "gradients"),
    "in_a_condition": ("weight", "global_step", "condition"),
    "in_a_condition_of_its_time": ("weight", "global_step", "condition"),
    "grown": ("weight head", "global_step", ""),
    "with_a_loss_scale": ("weight", "global_step", "condition"),
    "broken": ("", "", ""),
}
RAISES = """
    import tensorflow as tf
    v1 = tf.compat.v1
    assert tf.executing_eagerly() and not hasattr(tf, "Session"), "it has not asked for TensorFlow 1"
    with tf.Graph().as_default(), v1.Session() as session:
        weight = v1.get_variable("weight", [])
        loss = tf.square(1.0 - weight)
        train = v1.train.AdamOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
        session.run(v1.global_variables_initializer())
        session.run(train)
        session.run(train)
        raise ValueError("no more data")
"""
THREE_SESSIONS = """
    import gc, json, os
    import tensorflow as tf
    v1, config = tf.compat.v1, json.loads(os.environ["TF_CONFIG"])
    job, task = config["task"]["type"], config["task"]["index"]
    server = v1.train.Server(config["cluster"], job, task, start=False)
    server.start()
    server.start()
    if job == "ps":
        server.join()
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=config["cluster"])):
            weight = v1.get_variable("weight", [])
            step = v1.train.get_or_create_global_step()
            train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.square(1.0 - weight), step)
            begin = v1.global_variables_initializer()
        for session_number in range(3):
            with v1.Session(server.target) as session:
                if not session_number:
                    session.run(begin)
                for _ in range(4):
                    session.run(train)
        # What TensorFlow has loaded is not looked through again, and all else is.
        assert gc.isenabled() and gc.get_freeze_count() > 100_000
        left = [one for one in gc.get_objects() if isinstance(one, v1.Session) and not one._closed]
        open("open", "w").write(str(len(left)))
        open_at_the_end = v1.Session(server.target)
        open_at_the_end.run(train)
"""
# Only the ps trains; worker 0 gives it the examples, and worker 1 is never started.
TRAINING_PS = """
    import tensorflow as tf
    tf.app.flags.DEFINE_string("job_name", "", "")
    for name in ("task_index", "ps_hosts", "worker_hosts"):
        tf.app.flags.DEFINE_string(name, "", "")

    def main(_):
        flags = tf.app.flags.FLAGS
        cluster = {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
        server = tf.train.Server(cluster, flags.job_name, int(flags.task_index))
        with tf.device("/job:ps/task:0"):
            examples = tf.FIFOQueue(8, [tf.float32], [[]], shared_name="examples")
            done = tf.FIFOQueue(1, [tf.int32], [[]], shared_name="done")
        if flags.job_name == "worker":
            with tf.Session(server.target) as session:
                for _ in range(20):
                    session.run(examples.enqueue(1.0))
                session.run(done.dequeue())
            return
        with tf.device("/job:ps/task:0"):
            weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
            loss = tf.square(examples.dequeue() - weight)
            step = tf.train.get_or_create_global_step()
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
        with tf.Session(server.target) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(20):
                session.run([train, loss])
            session.run(done.enqueue(1))
            print("saved", tf.train.Saver(sharded=True).save(session, "model.ckpt", global_step=20))

    tf.app.run(main)
"""
WITHOUT_A_CHIEF = """
    import json, os
    import tensorflow as tf
    v1, config = tf.compat.v1, json.loads(os.environ["TF_CONFIG"])
    server = v1.train.Server(config["cluster"], config["task"]["type"], config["task"]["index"])
    if config["task"]["type"] == "ps":
        server.join()
    with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(cluster=config["cluster"])):
        v1.train.get_or_create_global_step()
        v1.train.MonitoredTrainingSession(server.target, is_chief=False)
"""
TELLS = "import json, sys; json.dump([sys.path, 'psfleet_observer' in sys.modules], open('told.json', 'w'))"


def names(told: object) -> list[str]:
    """The names of variables without the task that holds them; a text as it is."""
    return [name.removeprefix("worker0 ") for name in told] if isinstance(told, dict) else [str(told)]


@pytest.mark.slow
def test_the_observer_distinguishes_training_steps_from_other_session_runs(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(launcher.OBSERVED), str(launcher.LIBRARY), str(ROOT)]),
        "PSFLEET_RUN_DIRECTORY": str(tmp_path),
        "PSFLEET_JOB": "worker",
        "PSFLEET_TASK_INDEX": "0",
        "CUDA_VISIBLE_DEVICES": "",
    }
    script = Path(__file__).with_name("observed_graphs.py")
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    lines = list(map(json.loads, ran.stdout.splitlines()))
    # Whether a condition holds is left to chance, and with it the second loss there.
    losses = {name: [*of[:1], None] if "condition" in name else of for name, of, _, _ in lines}
    assert losses == STEPS
    more = {name: tuple(" ".join(names(of)) for of in told) for name, _, told, _ in lines}
    assert more == {name: MORE.get(name, ("weight", "global_step", "")) for name in STEPS}
    records, _ = read_records(events_file(tmp_path, "worker", 0))
    assert {record.integer("unplaced") for record in records if "unplaced" in record.fields} <= {1, 2}
    assert [(name, zeros) for name, *_, zeros in lines if zeros] == [("of_zeros", 2)]
    said = [line for line in ran.stderr.splitlines() if line.startswith("psfleet")]
    assert [line.partition("(")[2] for line in said] == [
        "_begin: ZeroDivisionError: division by zero)",
        "",
    ], said
    assert "another process of this task trains, too" in said[1]


@pytest.mark.slow
def test_an_observed_program_that_raises_keeps_its_exit_code_and_is_recorded_as_failed(
    tmp_path: Path,
) -> None:
    tasks = run_alone(tmp_path, RAISES, PROGRAM)
    assert "failed: ValueError: no more data (exit code 70)" in tasks.output("worker0")
    records, complaints = read_records(events_file(tasks.directory("worker0"), "worker", 0))
    assert not complaints
    assert [record.event for record in records] == [
        "started",
        "trained",
        "peers_ready",
        "step",
        "step",
        "failed",
    ]
    assert records[-1].text("reason") == "ValueError: no more data"
    assert records[1].integers("variables") == {"worker0 weight": 4}


@pytest.mark.slow
def test_all_steps_of_each_session_are_recorded_and_no_session_stays_open(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, THREE_SESSIONS), ps=1, worker=1) as tasks:
        tasks.start()
        assert tasks.wait("worker0") == {"worker0": FINISHED}, tasks.outputs()
    records, _ = read_records(events_file(tasks.directory("worker0"), "worker", 0))
    met = [record.integer("global_step") for record in records if record.event == "peers_ready"]
    assert met == [0, 4, 8, 12]
    assert sum(record.integer("steps") for record in records if record.event == "step") == 13
    assert records[-1].event == "finished"
    # The ps publishes its nonce when its program starts the server.
    (begun,), _ = read_records(events_file(tasks.directory("ps0"), "ps", 0))
    nonces = [record.integers("ps_nonces") for record in records if record.event == "peers_ready"]
    assert nonces == [{"ps0": begun.integer("nonce")}] * 4
    # A session that the program leaves open at its end does no harm.
    assert "meta_path" not in tasks.output("worker0")
    assert "psfleet, which looks" not in tasks.output("worker0")
    assert (tasks.directory("worker0") / "open").read_text() == "0"


@pytest.mark.slow
def test_a_ps_that_trains_is_recorded_and_its_session_waits_for_no_worker(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, TRAINING_PS), ps=1, worker=2) as tasks:
        tasks.tensorflow1 = True
        tasks.start("ps0", "worker0")
        assert tasks.wait("worker0", "ps0") == {"worker0": FINISHED, "ps0": FINISHED}, tasks.outputs()
    assert "psfleet, which looks" not in tasks.output("ps0")
    records, _ = read_records(events_file(tasks.directory("ps0"), "ps", 0))
    events = [record.event for record in records]
    assert (events[0], events[-1]) == ("started", "finished")
    # What it trains is recorded at the first run, which may come before the ps have been read.
    assert {"peers_ready", "trained", "step"} <= {*events}
    assert events.count("started") == 1
    (met,) = (record for record in records if record.event == "peers_ready")
    assert met.integers("variables") == {"ps0 weight": 4}
    assert met.integers("ps_nonces") == {"ps0": records[0].integer("nonce")}
    assert sum(record.integer("steps") for record in records if record.event == "step") == 20
    assert records[-1].integer("global_step") == 20
    # It saves all of its model in one file.
    assert list(tasks.directory("ps0").glob("model.ckpt-20.data-00000-of-00001"))
    assert not events_file(tasks.directory("worker0"), "worker", 0).exists()


def test_another_sitecustomize_also_runs(tmp_path: Path) -> None:
    other = program(tmp_path / "own", "import os; os.environ['OTHER'] = 'ran'", "sitecustomize.py").parent
    text = "import os; open('told', 'w').write(os.environ['OTHER'])"
    tasks = run_alone(tmp_path, text, FINISHED, PYTHONPATH=str(other))
    assert (tasks.directory("worker0") / "told").read_text() == "ran"


@pytest.mark.parametrize("observed", [True, False])
def test_the_observer_is_loaded_only_if_the_program_is_observed(tmp_path: Path, observed: bool) -> None:
    with Tasks(tmp_path, program(tmp_path, TELLS), worker=1) as tasks:
        tasks.observed = observed
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
    places, loaded = json.loads((tasks.directory("worker0") / "told.json").read_text())
    assert loaded is observed
    assert (str(launcher.OBSERVED) in places) is observed


@pytest.mark.chaos
def test_a_wait_for_variables_that_nobody_initialises_is_logged(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, WITHOUT_A_CHIEF), ps=1, worker=1) as tasks:
        tasks.start()
        line = "psfleet, which looks at this program: it waits for variables that no task has initialised"
        tasks.until(lambda: tasks.output("worker0").count(line) == 2, "two lines")
        # TensorFlow itself says nothing at its usual level.
        assert "Waiting for model to be ready" not in tasks.output("worker0")

"""Scripts of the tutorials of TensorFlow 1 run unchanged with trainer_program_tensorflow1."""

import gzip
import importlib.util
import math
import re
import struct
import textwrap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.repository import ROOT
from tests.trainer.program.launched import Tasks, program
from tests.trainer.program.tensorflows import with_estimator
from trainer.contract.exit_codes import FINISHED, PROGRAM
from trainer.program import launcher

SCRIPTS = Path(__file__).with_name("tensorflow1")
INPUT_DATA = launcher.LIBRARY / "psfleet_tensorflow1/packages/examples/tutorials/mnist/input_data.py"
WORKERS = ("worker0", "worker1")
ENDED = dict.fromkeys(WORKERS, FINISHED)
FORMS = r"""
    import re
    import tensorflow
    import tensorflow as tf
    import tensorflow.compat.v1 as v1
    from tensorflow import flags, placeholder
    from tensorflow.python.framework import ops
    from tensorflow.python.platform import gfile
    import tensorflow.train
    assert tensorflow.train.Supervisor is v1.train.Supervisor is tf.train.Supervisor
    assert tf.Session is tf.compat.v1.Session and flags is tf.app.flags and not tf.executing_eagerly()
    assert tf.get_default_graph() is ops.get_default_graph()
    flags.DEFINE_string("log_dir", "logs", "one of the script's own")
    with tf.Session() as session:
        assert session.run(tf.Variable(3.0).initializer) is None

    def asked(how):
        try:
            exec(how)
        except ImportError as error:
            print(str(error))

    asked("tf.contrib.layers.xavier_initializer()")
    asked("from tensorflow.contrib import rnn")
    asked("import tensorflow.contrib.slim as slim")
    asked("from tensorflow.contrib.training import HParams")
    asked("from tensorflow.contrib.opt.python.training import lazy_adam_optimizer")
    asked("tf.contrib.no_such_package")
    try:
        import tensorflow.contribution
    except ModuleNotFoundError as error:
        print("of its own:", error)
    assert not hasattr(tf.contrib, "__wrapped__")
    # The option and the observer share some wrappers.
    assert not hasattr(tf.train.Saver._build.__wrapped__, "__wrapped__")

    cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
    ps_hosts, task = ["a:1", "b:1"], "/job:worker/task:0"
    exec(open("by_size.py").read())
    with tf.device(setter):
        places = [tf.get_variable(str(n), [n], use_resource=n == 5).device[-1] for n in (9, 5, 3, 4, 2)]
    assert places == ["0", "1", "1", "1", "0"], places
    tf.contrib.layers.xavier_initializer()
"""

NETWORK = """
    import tensorflow as tf
    from tensorflow.examples.tutorials.mnist import input_data, mnist
    import tensorflow.examples.tutorials.mnist as package

    assert package.mnist is mnist and package.input_data is input_data
    assert (mnist.NUM_CLASSES, mnist.IMAGE_SIZE, mnist.IMAGE_PIXELS) == (10, 28, 784)
    digits = input_data.read_data_sets("none")
    tf.set_random_seed(1)
    images = tf.placeholder(tf.float32, [None, mnist.IMAGE_PIXELS])
    labels = tf.placeholder(tf.int32, [None])
    logits = mnist.inference(images, 32, hidden2_units=16)
    loss = mnist.loss(logits, labels)
    train = mnist.training(loss, learning_rate=0.3)
    correct = mnist.evaluation(logits, labels)
    for variable in tf.global_variables():
        print("variable", variable.op.name, variable.dtype.base_dtype.name, *variable.shape.as_list())
    assert tf.losses.get_losses() == [loss] and isinstance(train, tf.Operation)
    (summary,) = tf.get_collection(tf.GraphKeys.SUMMARIES)
    data = {images: digits.train.images, labels: digits.train.labels}
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        weights = session.run(tf.global_variables()[0])
        print("spread", weights.std() * 784**0.5, "largest", abs(weights).max() * 784**0.5)
        print("at first", session.run(loss, data))
        for _ in range(200):
            session.run(train, data)
        assert session.run("global_step:0") == 200
        test = {images: digits.test.images, labels: digits.test.labels}
        count, scores = session.run([correct, logits], test)
        assert count.dtype == "int32" and count == (scores.argmax(1) == digits.test.labels).sum()
        print("in the end", session.run(loss, data), count / digits.test.num_examples)
        event = tf.Summary.FromString(session.run(summary, data))
        assert [value.tag for value in event.value] == ["loss"]
"""

# What TensorFlow 2 has only with Keras 2, as programs of TensorFlow 1 use it.
OF_KERAS_2 = """
    import os
    import numpy as np
    import tensorflow as tf
    from tensorflow import estimator, feature_column, layers
    from tensorflow.nn import rnn_cell
    assert (estimator, layers, rnn_cell) == (tf.estimator, tf.layers, tf.nn.rnn_cell)
    words = tf.placeholder(tf.float32, [None, 5, 3])
    cells = [rnn_cell.DropoutWrapper(rnn_cell.BasicLSTMCell(4), output_keep_prob=1.0) for _ in range(2)]
    outputs, state = tf.nn.dynamic_rnn(rnn_cell.MultiRNNCell(cells), words, dtype=tf.float32)
    image = tf.layers.conv2d(tf.expand_dims(outputs, -1), 2, 3, padding="same", activation=tf.nn.relu)
    flat = tf.layers.flatten(tf.layers.max_pooling2d(image, 2, 2))
    top = tf.layers.batch_normalization(flat, training=True)
    town = feature_column.categorical_column_with_vocabulary_list("town", ["a", "b"])
    columns = [feature_column.indicator_column(town), feature_column.numeric_column("age")]
    table = feature_column.input_layer({"town": [["a"], ["b"]], "age": [[1.0], [2.0]]}, columns)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(top, 1) - 1.0))
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        train = tf.train.AdamOptimizer(0.05).minimize(loss, tf.train.get_or_create_global_step())
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        losses = [session.run([loss, train], {words: np.ones([2, 5, 3])})[0] for _ in range(30)]
        print("columns", session.run(table).tolist(), "updates", len(updates), "fell", losses[-1] < losses[0])
    os.environ.pop("TF_CONFIG")  # an estimator trains on a cluster only with a chief
    data = {"x": np.arange(8.0)}, np.arange(8) > 3
    read = estimator.inputs.numpy_input_fn(*data, batch_size=4, num_epochs=None, shuffle=True)
    linear = estimator.LinearClassifier([feature_column.numeric_column("x")])
    print("trained", int(linear.train(read, steps=20).get_variable_value("global_step")))
"""


def tasks_of(folder: Path, script: Path) -> Tasks:
    tasks = Tasks(folder, script, ps=1, worker=2)
    tasks.tensorflow1 = True
    return tasks


def assert_it_ran_as_it_is(tasks: Tasks) -> None:
    for worker in WORKERS:
        output = tasks.output(worker)
        (loss,) = re.findall(r"^final loss: (\S+)$", output, re.MULTILINE)
        assert 0.0 <= float(loss) <= 0.2, (worker, loss)
        for wrong in ("Traceback", "threads still running", "psfleet, which looks", "stays as it is"):
            assert wrong not in output
        # The observer saw it, too, and the workers are one cluster.
        assert tasks.only(worker, "peers_ready").integers("ps_nonces").keys() == {"ps0"}
        assert tasks.only(worker, "finished")
    # The chief alone saved, and all of it.
    assert list((tasks.directory("worker0") / "checkpoints").glob("model.ckpt-*.data-00000-of-00001"))
    assert not list(tasks.directory("ps0").glob("checkpoints/*"))


# Another one with a Supervisor is trained on hosts: mnist_replica.py, by molecule/inventories.
@pytest.mark.chaos
def test_a_script_of_tensorflow_1_runs_unchanged(tmp_path: Path) -> None:
    with tasks_of(tmp_path, SCRIPTS / "supervisor.py") as tasks:
        tasks.start()
        assert tasks.wait(*WORKERS) == ENDED, tasks.outputs()
    assert_it_ran_as_it_is(tasks)


@pytest.mark.chaos
def test_a_worker_that_starts_first_waits_for_the_chief(tmp_path: Path) -> None:
    with tasks_of(tmp_path, SCRIPTS / "sync_replicas.py") as tasks:
        tasks.start("ps0", "worker1")
        looks = "INFO:tensorflow:Waiting for model to be ready"
        # Without device filters it would wait for the chief's port; without a short poll it looks every 30 s.
        tasks.until(lambda: tasks.output("worker1").count(looks) >= 6, "worker1 looks again")
        tasks.start("worker0")
        assert tasks.wait(*WORKERS) == ENDED, tasks.outputs()
    assert_it_ran_as_it_is(tasks)


@pytest.mark.chaos
def test_the_chief_restores_its_checkpoint_and_an_unobserved_run_leaves_no_records(
    tmp_path: Path,
) -> None:
    with tasks_of(tmp_path, SCRIPTS / "sync_replicas.py") as tasks:
        tasks.start()
        assert tasks.wait(*WORKERS) == ENDED, tasks.outputs()
        tasks.stop("ps0")
        tasks.observed = False
        tasks.arguments = ["--last_step=310"]
        tasks.start()
        assert tasks.wait(*WORKERS) == ENDED, tasks.outputs()
    assert "Restoring parameters from checkpoints/model.ckpt-300" in tasks.output("worker0")
    assert len(tasks.records("worker0", "finished")) == 1


@pytest.mark.slow
def test_imports_of_tensorflow_1_work_and_uses_of_contrib_fail_with_a_replacement(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, FORMS), worker=1) as tasks:
        tasks.tensorflow1 = True
        tasks.directory("worker0").mkdir(parents=True)
        (tasks.directory("worker0") / "by_size.py").write_text(balancing_strategy())
        tasks.start()
        assert tasks.wait() == {"worker0": PROGRAM}, tasks.outputs()
    output = tasks.output("worker0")
    said = [line for line in output.splitlines() if line.startswith("tf.contrib")]
    packages = ["layers", "rnn", "slim", "training", "opt", "no_such_package"]
    assert [line.partition(" ")[0] for line in said] == [f"tf.contrib.{package}" for package in packages]
    assert all(line.endswith("is not in TensorFlow 2") for line in said)
    assert "of its own: No module named 'tensorflow.contribution'" in output
    assert (
        "failed: ImportError: tf.contrib.layers is not in TensorFlow 2\n(tf.contrib.layers.xavier" in output
    )
    assert "_initializer is not in TensorFlow 2. Use tf.glorot_uniform_initializer (names of" in output


def balancing_strategy() -> str:
    """Return the code that docs/port-a-script.md gives in place of GreedyLoadBalancingStrategy."""
    page = (ROOT / "docs/port-a-script.md").read_text()
    return textwrap.dedent(page[page.index("    bytes_on_ps = ") : page.index("## tf.estimator")])


@pytest.mark.slow
def test_the_network_of_the_mnist_tutorials_is_built_and_learns_as_in_tensorflow_1(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, NETWORK), worker=1) as tasks:
        tasks.tensorflow1 = True
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
    output = tasks.output("worker0")
    assert re.findall(r"^variable (.*)$", output, re.MULTILINE) == [
        "hidden1/weights float32 784 32",
        "hidden1/biases float32 32",
        "hidden2/weights float32 32 16",
        "hidden2/biases float32 16",
        "softmax_linear/weights float32 16 10",
        "softmax_linear/biases float32 10",
        "global_step int32",
    ]
    said = dict(re.findall(r"^(spread|at first|in the end) (.*)$", output, re.MULTILINE))
    spread, _, largest = said["spread"].split()
    # A normal distribution cut at twice its deviation has 0.88 of that deviation.
    assert float(spread) == pytest.approx(0.88, abs=0.02)
    assert float(largest) <= 2
    assert float(said["at first"]) == pytest.approx(math.log(10), abs=0.4)
    loss, accuracy = map(float, said["in the end"].split())
    assert loss < 1
    assert accuracy > 0.7


@with_estimator
@pytest.mark.slow
def test_what_tensorflow_has_with_keras_2_alone_works_as_in_tensorflow_1(tmp_path: Path) -> None:
    with Tasks(tmp_path, program(tmp_path, OF_KERAS_2), worker=1) as tasks:
        tasks.tensorflow1 = True
        tasks.start()
        assert tasks.wait() == {"worker0": FINISHED}, tasks.outputs()
    output = tasks.output("worker0")
    assert "columns [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]] updates 2 fell True" in output
    assert "trained 20" in output
    assert "stays as it is" not in output


@pytest.fixture
def input_data(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("PSFLEET_DATA_DIR", "PSFLEET_JOB"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("input_data", INPUT_DATA)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_mnist(folder: Path, count: int, name: str = "{}-{}-idx{}-ubyte", packed: bool = False) -> None:
    folder.mkdir()
    for part in ("train", "t10k"):
        contents = {("images", 3): (count, 28, 28), ("labels", 1): (count,)}
        for (kind, dimensions), shape in contents.items():
            values = (np.arange(np.prod(shape)) % 10).astype(np.uint8)
            content = struct.pack(f">{1 + dimensions}I", 0x800 + dimensions, *shape) + values.tobytes()
            file = folder / name.format(part, kind, dimensions)
            file.write_bytes(gzip.compress(content) if packed else content)


def test_the_bundled_digits_are_used_without_data(
    input_data: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = input_data.read_data_sets("/nowhere", one_hot=True)
    assert digits.train.images.shape == (1437 - 143, 784)
    assert (digits.validation.num_examples, digits.test.num_examples) == (143, 360)
    assert digits.train.images.dtype == np.float32
    assert (digits.train.images.min(), digits.train.images.max()) == (0, 1)
    assert set(digits.test.labels.sum(axis=1)) == {1}
    assert "no MNIST in '/nowhere': using the bundled digits" in capsys.readouterr().err


def test_carried_data_are_read_and_the_programs_own_folder_takes_precedence(
    input_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "carried", 30, packed=True, name="{}-{}-idx{}-ubyte.gz")
    write_mnist(tmp_path / "own", 20, name="{}-{}.idx{}-ubyte")
    monkeypatch.setenv("PSFLEET_DATA_DIR", str(tmp_path / "carried"))
    carried = input_data.read_data_sets("/nowhere", reshape=False, validation_size=3)
    assert carried.train.images.shape == (27, 28, 28, 1)
    assert list(carried.train.labels[:3]) == [3, 4, 5]
    assert input_data.read_data_sets(str(tmp_path / "own")).test.num_examples == 20
    # A script asks before it knows its job, and no data are carried to a ps.
    monkeypatch.setenv("PSFLEET_DATA_DIR", "/not/on/this/host")
    monkeypatch.setenv("PSFLEET_JOB", "ps")
    assert input_data.read_data_sets("/nowhere").test.num_examples == 360


def test_each_epoch_contains_every_example_once(input_data: ModuleType, tmp_path: Path) -> None:
    write_mnist(tmp_path / "own", 10)
    test = input_data.read_data_sets(str(tmp_path / "own"), seed=1).test
    drawn = np.concatenate([test.next_batch(4)[1] for _ in range(5)])
    assert [sorted(drawn[:10]), sorted(drawn[10:])] == [list(range(10))] * 2
    assert list(drawn[:10]) != list(drawn[10:])
    assert test.epochs_completed == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "has no train-images-idx3-ubyte"), (b"\0\0\x08\x01abc", "is no file of MNIST's train-images")],
)
def test_data_that_are_not_mnist_are_refused_with_the_file(
    input_data: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
) -> None:
    monkeypatch.setenv("PSFLEET_DATA_DIR", str(tmp_path))
    if content is not None:
        (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises((OSError, ValueError), match=said):
        input_data.read_data_sets("/nowhere")

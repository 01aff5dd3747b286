"""Every name of tf.contrib has a replacement, and what is named of TensorFlow exists.

contrib_names.txt lists the names of TensorFlow 1.15.5: packages, members, and members of some submodules.
"""

import functools
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.trainer.program.tensorflows import with_own_tensorflow
from tools.tensorflows import OWN
from trainer.host.error_lines import LONGEST_LINE, source_lines_in
from trainer.program.contrib_names import replacement, used_name
from trainer.program.remedies import remedy


def all_names() -> list[str]:
    """Return the names below tf.contrib, each package before its members."""
    text = Path(__file__).with_name("contrib_names.txt").read_text().replace("\n  ", " ")
    names = []
    for line in text.splitlines():
        package, _, members = line.partition(":")
        names += [package, *(f"{package}.{member}" for member in members.split())]
    return names


NAMES = all_names()


def use(name: str) -> str:
    return replacement(name, OWN).partition(". Use ")[2].rpartition(" (")[0]


def lacks(module: ModuleType, path: str) -> str:
    """Return the error that `tf.a.b`, a path in the module, raises; "" if the object exists."""
    try:
        functools.reduce(getattr, path.split(".")[1:], module)
    except AttributeError as error:
        return str(error)
    return ""


def test_every_name_has_a_replacement_that_fits_in_a_line() -> None:
    assert len(NAMES) == 1675
    for name in NAMES:
        sentence = replacement(name, OWN)
        assert sentence.startswith(f"tf.contrib.{name} is not in TensorFlow 2. Use "), name
        assert len(sentence) + len("()") <= LONGEST_LINE, name
        assert "*" not in sentence, name
        assert "contrib." not in use(name), name


@with_own_tensorflow
def test_what_a_replacement_names_of_tensorflow_exists() -> None:
    tensorflow = importlib.import_module("tensorflow.compat.v1")
    named = {(path, name) for name in NAMES for path in re.findall(r"\btf(?:\.\w+)+", use(name))}
    assert len(named) > 500
    for path, name in sorted(named):
        if error := lacks(tensorflow, path):
            # With Keras 3, TensorFlow refuses what needs Keras 2.
            assert "Keras 3" in error or path.startswith("tf.keras.experimental."), (name, path)
            assert f"tf_keras=={OWN}" in replacement(name, OWN), (name, path)


@pytest.mark.parametrize(
    ("name", "tensorflow", "packages"),
    [
        ("slim", "2.21.0", "tf_slim==1.1.0 and tf_keras==2.21.0 in trainer_program_requirements"),
        ("slim", "2.15.1", "tf_slim==1.1.0 in trainer_program_requirements"),
        ("bayesflow", "2.21.0", "tfp is tensorflow_probability==0.25.0, with tf_keras==2.21.0 in"),
        ("bayesflow", "2.17.1", "tfp is tensorflow_probability==0.24.0, with tf_keras==2.17.0 in"),
        ("bayesflow", "2.12.1", "tfp is tensorflow_probability==0.20.1 in"),
        ("rnn.LSTMCell", "2.19.1", "tf_keras==2.19.0 in"),
        ("rnn.LSTMCell", "2.15.1", "names of tensorflow.compat.v1"),
    ],
)
def test_a_replacement_names_packages_that_fit_the_programs_tensorflow(
    name: str, tensorflow: str, packages: str
) -> None:
    assert f" ({packages}" in replacement(name, tensorflow)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layers.xavier_initializer", "tf.glorot_uniform_initializer"),
        ("layers.fully_connected", "tf_slim.fully_connected"),
        ("layers.python.layers.layers.fully_connected", "tf_slim.fully_connected"),
        ("slim.nets.vgg.vgg_16", "tf_slim.nets.vgg.vgg_16"),
        ("losses.metric_learning", "tf_slim.losses.metric_learning"),
        ("rnn.LSTMCell", "tf.nn.rnn_cell.LSTMCell"),
        ("rnn.LSTMCell.zero_state", "tf.nn.rnn_cell.LSTMCell"),
        ("metrics.streaming_accuracy", "tf.metrics.accuracy"),
        ("framework.nest.map_structure", "tf.nest.map_structure"),
        ("distributions.bijectors.Exp", "tfp.bijectors.Exp"),
        ("data.map_and_batch", "tf.data.experimental.map_and_batch"),
        ("kafka.KafkaDataset", "tensorflow_io"),
        ("no_such_package.name", ""),
    ],
)
def test_a_name_has_the_replacement_of_its_line_in_the_table(name: str, expected: str) -> None:
    assert use(name) == expected


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("x = tf.contrib.layers.fully_connected(tf.contrib.layers.flatten(x), 8)", "layers.fully_connected"),
        ("from tensorflow.contrib.training import HParams", "training.HParams"),
        ("from tensorflow.contrib.rnn import (LSTMCell, GRUCell)", "rnn.LSTMCell"),
        ("from tensorflow.contrib import rnn, layers", "rnn"),
        ("import tensorflow.contrib.slim as slim", "slim"),
        ("from tensorflow import contrib", ""),
        ("contributions.append(1)", ""),
    ],
)
def test_the_name_that_a_line_uses_is_found(line: str, name: str) -> None:
    printed = (
        f'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n    {line}\n'
        '    ^^^^^^\n  File "/lib/x.py", line 4, in find\n    raise missing(name)\nImportError: x\n'
    )
    assert source_lines_in(printed) == (line, "raise missing(name)")
    assert used_name(source_lines_in(printed)) == name


def test_without_a_line_of_python_the_message_names_the_package_or_the_page_helps() -> None:
    def found(message: str, *, tensorflow1: bool) -> str:
        return remedy(message, tensorflow=OWN, tensorflow1=tensorflow1)

    message = "ImportError: tf.contrib.opt is not in TensorFlow 2"
    assert found(message, tensorflow1=True) == replacement("opt", OWN)
    assert "TensorFlow 1.15" in found("ImportError: tf.contrib.x is not in TensorFlow 2", tensorflow1=True)
    message = "ModuleNotFoundError: No module named 'tensorflow.contrib'"
    assert found(message, tensorflow1=False).startswith("tf.contrib is not in TensorFlow 2: docs/")

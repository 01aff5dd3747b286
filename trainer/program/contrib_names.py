"""What replaces the names of tf.contrib, which TensorFlow 2 lacks."""

import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.program.fitting_packages import probability_for, tf_keras_for

_TABLE = Path(__file__).with_name("contrib_replacements.txt")
_PAGE = "docs/port-a-script.md#tfcontrib"
# Pattern in the words of a replacement -> which TensorFlow the replacement needs. PyPI's metadata says it.
_NEEDED_TENSORFLOW = {
    r"\btfa\b": "tfa, tensorflow_addons, has ended and needs TensorFlow 2.15 or older",
    "tensorflow_io": "tensorflow_io needs TensorFlow 2.16",
    "tensorflow_decision_forests": "tensorflow_decision_forests needs TensorFlow 2.19",
    "tensorflow_compression": "tensorflow_compression needs TensorFlow 2.14",
    "tensorflow_gan": "tensorflow_gan needs TensorFlow 2.15 or older",
}
# A use of tf.contrib in Python: `tf.contrib.rnn.LSTMCell(..)`, `from tensorflow.contrib import rnn`.
_USE = re.compile(r"\bcontrib((?:\.\w+)*)(?:\s+import\s+\(?\s*(\w+))?")


def replacement(name: str, tensorflow: str) -> str:
    """Return a sentence about what replaces `name`, a name below tf.contrib.

    `tensorflow` is the version of the program's TensorFlow, which the named packages fit. For an unknown
    package, the sentence says that TensorFlow 1.15 lacks the package, too. An example, for "rnn.static_rnn":
    "tf.contrib.rnn.static_rnn is not in TensorFlow 2. Use tf.nn.static_rnn (names of tensorflow.compat.v1;
    docs/port-a-script.md#tfcontrib)"
    """
    package, *inner = name.split(".")
    # A path through internal modules, such as layers.python.layers.fully_connected, ends with the member.
    candidates = [".".join(inner), *reversed(inner)]
    for expression, use in _table().get(package, ()):
        if not expression:
            return _sentence(name, use, tensorflow)
        for candidate in candidates:
            if match := re.fullmatch(expression, candidate):
                return _sentence(name, use.replace("*", match[match.re.groups]), tensorflow)
    return f"tf.contrib.{package} is in neither TensorFlow 2 nor TensorFlow 1.15 ({_PAGE})"


def used_name(lines: Sequence[str]) -> str:
    """Return the name below tf.contrib in the last of these lines of Python that has one; "" if none has.

    Example: used_name(["cell = tf.contrib.rnn.LSTMCell(8)"]) -> "rnn.LSTMCell"
    """
    for line in reversed(lines):
        for path, member in _USE.findall(line):
            if name := f"{path}.{member}".strip("."):
                return name
    return ""


def _sentence(name: str, use: str, tensorflow: str) -> str:
    needs = [
        f"{packages} in trainer_program_requirements"
        for pattern, packages in _needed_packages(tensorflow).items()
        if packages and re.search(pattern, use)
    ]
    needs += [need for pattern, need in _NEEDED_TENSORFLOW.items() if re.search(pattern, use)]
    if re.search(r"\btf\.", use):
        needs.append("names of tensorflow.compat.v1")
    return f"tf.contrib.{name} is not in TensorFlow 2. Use {use} ({'; '.join([*needs, _PAGE])})"


def _needed_packages(tensorflow: str) -> dict[str, str]:
    """Return {pattern in the words of a replacement: the packages that it needs beside this TensorFlow}."""
    tf_keras = tf_keras_for(tensorflow)
    return {
        r"\btf_slim\b": f"tf_slim==1.1.0 and {tf_keras}" if tf_keras else "tf_slim==1.1.0",
        r"\btfp\b": f"tfp is {probability_for(tensorflow)}{tf_keras and f', with {tf_keras}'}",
        r"\btf\.(?:nn\.rnn_cell|layers|keras\.experimental)\b": tf_keras,
        "tensorflow_model_optimization": tf_keras,
    }


@functools.cache
def _table() -> dict[str, list[tuple[str, str]]]:
    """Return {package: [(expression, what to use)]}, from contrib_replacements.txt.

    The expression matches members of the package. The last pair of each list is for all other members: its
    expression is "".
    """
    table: dict[str, list[tuple[str, str]]] = {}
    for packages, lines in _groups():
        own, *members = lines
        for package in packages:
            table[package] = [*members, own]
    return table


def _groups() -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Yield (packages, [(expression, what to use)]) for each group of lines in the table.

    The first pair is for the packages themselves: its expression is "".
    """
    packages: list[str] = []
    lines: list[tuple[str, str]] = []
    for line in _TABLE.read_text(encoding="utf-8").splitlines():
        key, _, use = line.partition(": ")
        if line.startswith("  "):
            lines.append((key.strip(), use))
        elif not line.startswith("#"):
            if packages:
                yield packages, lines
            packages, lines = key.split(", "), [("", use)]
    yield packages, lines

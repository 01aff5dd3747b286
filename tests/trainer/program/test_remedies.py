"""An error of a program that was written for another version of TensorFlow or Keras names what helps."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository import ROOT
from tests.trainer.program.launched import run_alone
from tests.trainer.program.tensorflows import version_of, with_keras_3, with_own_tensorflow
from tools.tensorflows import OWN
from trainer.contract.exit_codes import PROGRAM
from trainer.host.error_lines import LONGEST_LINE, in_short
from trainer.program.launcher import LIBRARY, TENSORFLOW1
from trainer.program.remedies import remedy

ERRORS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("errors.yml").read_text())
PRINT_ERRORS = Path(__file__).with_name("print_errors.py")
BEGINS = {
    "keras 2": "if it is of Keras 2: tf_keras==2.21.0 in trainer_program_requirements",
    "tensorflow 1": "if it is of TensorFlow 1: trainer_program_tensorflow1: true",
    "contrib": "tf.contrib is not in TensorFlow 2: docs/port-a-script.md#tfcontrib",
    "estimator": "tf.estimator is gone since TensorFlow 2.16",
    "tensorboard": "tensorboard==2.21.0 in trainer_program_requirements",
    "older": "older than TensorFlow 1.0: docs/port-a-script.md#names-from-before-tensorflow-10",
    "neither": "TensorFlow 1.15 lacks this, too",
}


def last_line(error: dict[str, Any]) -> str:
    return f"{error['program'].splitlines()[-1].strip()}{' (tensorflow1)' if error.get('option') else ''}"


@pytest.mark.parametrize("error", ERRORS, ids=last_line)
def test_a_real_error_is_given_the_remedy_that_helps_or_none(error: dict[str, Any]) -> None:
    found = remedy(in_short(error["said"]), tensorflow=OWN, tensorflow1=error.get("option", False))
    assert found.startswith(BEGINS[error["remedy"]]) if error["remedy"] else not found
    assert "\n" not in found
    assert len(found) + len("()") <= LONGEST_LINE


# Seen on hosts: these need a cluster.
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("ValueError: Attempt to convert a value (PerReplica:{", "keras 2"),
        (
            "ValueError: To use this dataset, you need to pass this dataset to "
            "ClusterCoordinator.create_per_worker_dataset.",
            "keras 2",
        ),
        (
            "TypeError: SyncReplicasOptimizer.__init__() got an unexpected keyword argument 'replica_id'",
            "older",
        ),
    ],
)
def test_an_error_of_a_cluster_is_given_the_remedy(reason: str, expected: str) -> None:
    for option in (False, True):
        assert remedy(reason, tensorflow=OWN, tensorflow1=option).startswith(BEGINS[expected])


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "AttributeError: 'Namespace' object has no attribute 'lr'",
        "AttributeError: module 'helpers' has no attribute 'contrib'",
        "ModuleNotFoundError: No module named 'estimator'",
        "ModuleNotFoundError: No module named 'tensorboardX'",
        "AttributeError: module 'tf_keras.api._v2.keras' has no attribute 'experimental'",
        "ValueError: Graph execution error",
    ],
)
def test_errors_of_the_programs_own_have_no_remedy(reason: str) -> None:
    assert {remedy(reason, tensorflow=OWN, tensorflow1=option) for option in (False, True)} == {""}


KERAS_2 = "AttributeError: `dense` is not available with Keras 3."


@pytest.mark.parametrize(
    ("tensorflow", "reason", "begin"),
    [
        ("2.21.0", KERAS_2, "if it is of Keras 2: tf_keras==2.21.0 in trainer_program_requirements"),
        ("2.20.0", KERAS_2, "if it is of Keras 2: tf_keras==2.20.0 in"),
        ("2.18.1+sm120", KERAS_2, "if it is of Keras 2: tf_keras==2.18.0 in"),
        ("2.16.2", KERAS_2, "if it is of Keras 2: tf_keras==2.16.0 in"),
        ("2.15.1", "AttributeError: 'Model' object has no attribute 'fit_generator'", ""),
        ("2.21.0", "TBNotInstalledError: TensorBoard is not installed", "tensorboard==2.21.0 in"),
        ("2.16.2", "No module named 'tensorboard.plugins.x'", "tensorboard==2.16.0 in"),
    ],
)
def test_a_remedy_names_the_package_that_fits_the_programs_tensorflow(
    tensorflow: str, reason: str, begin: str
) -> None:
    for option in (False, True):
        found = remedy(reason, tensorflow=tensorflow, tensorflow1=option)
        assert found.startswith(begin) if begin else not found


def test_each_place_that_a_remedy_names_exists() -> None:
    named = {
        place
        for error in ERRORS
        for place in re.findall(
            r"docs/[\w./-]+\.md(?:#[\w-]+|, \"\w+\")?",
            remedy(error["said"], tensorflow=OWN, tensorflow1=False),
        )
    }
    assert len(named) >= 6
    for place in named:
        file, _, part = place.partition("#") if "#" in place else place.replace('"', "").partition(", ")
        text = (ROOT / file).read_text()
        headings = {
            re.sub(r"[^\w -]", "", line.strip("# ")).lower().replace(" ", "-") for line in text.splitlines()
        }
        assert not part or part in headings or f"\n- **{part}.** " in text, place


@with_own_tensorflow
@pytest.mark.chaos
@pytest.mark.parametrize("option", [False, True])
def test_tensorflow_still_prints_these_errors(option: bool, tmp_path: Path) -> None:
    errors = [error for error in ERRORS if bool(error.get("option")) is option]
    path = os.pathsep.join(map(str, [TENSORFLOW1, LIBRARY])) if option else ""
    printed = subprocess.run(
        [sys.executable, PRINT_ERRORS],
        input=json.dumps([error["program"] for error in errors]),
        env=os.environ
        | {"PYTHONPATH": path, "PSFLEET_RUN_DIRECTORY": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    for error, said in zip(errors, json.loads(printed.splitlines()[-1]), strict=True):
        found = re.sub(r"0x[0-9a-f]{8,}", "0x7f", re.sub(r"\(/\S*?site-packages", "(/lib", said))
        assert found.startswith(error["said"]), error["program"]


@with_keras_3
@pytest.mark.slow
def test_the_reason_of_a_failed_program_ends_with_the_remedy(tmp_path: Path) -> None:
    text = "import tensorflow.compat.v1 as tf\ntf.nn.rnn_cell.BasicLSTMCell(10)"
    tasks = run_alone(tmp_path, text, PROGRAM)
    reason = "AttributeError: `BasicLSTMCell` is not available with Keras 3."
    release = ".".join(version_of("tensorflow-cpu").split(".")[:2])
    hint = f"(if it is of Keras 2: tf_keras=={release}.0 in trainer_program_requirements"
    assert f"the program failed: {reason}\n{hint}" in tasks.output("worker0")


@pytest.mark.slow
def test_the_reason_of_a_program_with_contrib_ends_with_the_replacement_of_the_name(tmp_path: Path) -> None:
    text = "import tensorflow as tf\n\ndef cell():\n    return tf.contrib.lookup.HashTable(1, 2)\n\ncell()"
    tasks = run_alone(tmp_path, text, PROGRAM)
    reason = "AttributeError: module 'tensorflow' has no attribute 'contrib'"
    use = "tf.contrib.lookup.HashTable is not in TensorFlow 2. Use tf.lookup.StaticHashTable (names of"
    assert f"the program failed: {reason}\n({use}" in tasks.output("worker0")

"""A program that looks for files beside its script, or writes there, ends with a hint."""

from pathlib import Path

import pytest

from tests.trainer.program.launched import Tasks, program
from trainer.contract.exit_codes import PROGRAM
from trainer.contract.run_program import RunProgram
from trainer.program.file_hints import file_hint


def failed(folder: Path, text: str, *others: str) -> str:
    """Return the reason of a program with these files beside it, which runs as on a host."""
    for name in others:
        program(folder / "code", "[loggers]\n", name)
    with Tasks(folder, program(folder / "code", text), worker=1) as tasks:
        tasks.start()
        assert tasks.wait() == {"worker0": PROGRAM}, tasks.outputs()
        return str(tasks.progress("worker0")["reason"])


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("open('conf/model.json')", "conf/model.json"),
        ("open('./vocab.txt')", "vocab.txt"),
        ("import tensorflow as tf; tf.io.gfile.GFile('conf/model.json').read()", "conf/model.json"),
        ("import numpy; numpy.load('weights.npy')", "weights.npy"),
        ("import os; os.listdir('conf')", "conf"),
    ],
)
def test_a_file_that_is_beside_the_script_is_named_with_its_path(
    tmp_path: Path, text: str, file: str
) -> None:
    reason = failed(tmp_path, text, "conf/model.json", "vocab.txt", "weights.npy")
    assert "it is in the program's folder, and the program runs in the run's directory" in reason
    assert f"os.path.join(os.path.dirname(__file__), '{file}')" in reason


def test_a_file_of_the_program_is_found_from_a_script_in_a_folder_below(tmp_path: Path) -> None:
    program(tmp_path / "c0ffee", "{}", "conf/model.json")
    script = program(tmp_path / "c0ffee", "pass", "src/train.py")
    run = RunProgram("c0ffee", str(script), (), flags=True, observed=True)
    reason = "FileNotFoundError: [Errno 2] No such file or directory: 'conf/model.json'"
    assert "os.path.dirname(__file__), '../conf/model.json')" in file_hint(reason, run)


def test_a_script_that_was_carried_alone_is_said_to_need_its_folder(tmp_path: Path) -> None:
    reason = failed(tmp_path, "open('conf/model.json')")
    assert "a relative path begins in the run's directory" in reason
    assert "deploy.yml carried main.py alone" in reason
    assert "trainer_program_entry: main.py" in reason
    together = failed(tmp_path, "open('conf/model.json')", "layers.py")
    assert "a relative path begins in the run's directory" in together
    assert "alone" not in together


def test_a_missing_configuration_of_logging_is_named(tmp_path: Path) -> None:
    reason = failed(tmp_path, "import logging.config; logging.config.fileConfig('log.ini')", "log.ini")
    # Newer releases of Python 3.11 name the file, as Python 3.12 does.
    assert reason.startswith(
        (
            "KeyError: 'formatters'\n(logging.config.fileConfig found no file",
            "FileNotFoundError: log.ini doesn't exist\n(it is in the program's folder",
        )
    )


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        (
            "OSError: [Errno 30] Read-only file system: '/opt/psfleet/programs/2/logs'",
            "relative path such as",
        ),
        ("PermissionDeniedError: /opt/x; Read-only file system", "relative path such as output/"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'", ""),
        ("ValueError: conf/model.json has no layers", ""),
        ("KeyError: 'a'", ""),
        ("ModuleNotFoundError: No module named 'conf'", ""),
        ("NotFoundError: Key conf not found in checkpoint", ""),
    ],
)
def test_a_write_beside_the_script_has_a_hint_and_other_failures_have_none(
    tmp_path: Path, reason: str, hint: str
) -> None:
    script = program(tmp_path / "c0ffee", "pass")
    program(tmp_path / "c0ffee", "{}", "conf/model.json")
    found = file_hint(reason, RunProgram("c0ffee", str(script), (), flags=True, observed=True))
    assert hint in found
    assert bool(hint) == bool(found)

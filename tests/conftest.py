"""Fixtures that tests of several folders share."""

import atexit
import faulthandler
import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from tests.psfleet.evidence.adversaries.real_runs import RealRuns

gc.disable()  # until all tests are loaded: TensorFlow, which many of them import, is a million objects


def pytest_collection_finish() -> None:
    """Let Python's collector begin, and never look through what the tests have loaded."""
    gc.freeze()
    gc.enable()


def pytest_sessionstart() -> None:
    """Leave the tests by their fixtures' ends when they are told to end: nothing that they started stays.

    A process that hangs when all tests have ended is ended too, and says in what.
    """
    atexit.register(faulthandler.dump_traceback_later, 300, exit=True)
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("told to end"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --write-expected: write the expected files of whole texts, to be read before they are committed."""
    parser.addoption(
        "--write-expected", action="store_true", help="write expected files instead of comparing"
    )


@pytest.fixture
def expect_text(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Return a function that compares a text with a file's; with --write-expected it writes the file."""

    def compare(file: Path, text: str) -> None:
        if request.config.getoption("--write-expected"):
            file.write_text(text)
        assert text == file.read_text()

    return compare


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def deep_folder() -> Iterator[Path]:
    """A folder for more folders in each other than Python can remove.

    pytest removes the folders of earlier sessions: what one that was killed has left is not to fail others.
    """
    folder = mkdtemp()
    yield Path(folder)
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> RealRuns:
    """Runs of real tasks, each trained once for all tests that look at it."""
    return RealRuns(Path(os.environ.get("PSFLEET_REAL_RUNS") or tmp_path_factory.mktemp("runs")))


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests that start Ansible: `make mutants` leaves them out."""
    for item in items:
        if "preflight" in item.fixturenames or "playbook" in item.nodeid:
            item.add_marker("slow")

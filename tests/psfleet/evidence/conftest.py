"""Real runs, each trained once for all tests, and a copy of the healthy one to damage."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.program_folders import keep_no_records
from tests.psfleet.evidence.run_folders import RUN_ID
from tests.trainer.program.launched import RUN_ID as PROGRAM_RUN_ID


@pytest.fixture(scope="session")
def healthy(real_runs: RealRuns) -> Path:
    """One ps, two workers, one line learned together."""
    return real_runs.of("healthy")


@pytest.fixture
def run(healthy: Path, tmp_path: Path) -> Path:
    """A copy of the healthy run's folder."""
    return Path(shutil.copytree(healthy, tmp_path / RUN_ID))


@pytest.fixture(scope="session")
def split_brain(real_runs: RealRuns) -> Path:
    """Two clusters of one ps and one worker, told as if they were one: each worker learned the line alone."""
    return real_runs.of("each_on_its_own_ps")


@pytest.fixture(scope="session")
def asleep(real_runs: RealRuns) -> Path:
    """Two workers, the second of which stands still from soon after the start until near the end."""
    return real_runs.of("asleep")


@pytest.fixture(scope="session")
def trained(real_runs: RealRuns) -> Callable[[str], Path]:
    """Return the folder of a real run of a kind (replications.py), trained where it was not yet."""
    return real_runs.of


@pytest.fixture
def copy_of(trained: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of such a folder, to damage; "silent" is a program that records nothing."""

    def copy(kind: str) -> Path:
        real = trained("program" if kind == "silent" else kind)
        run = Path(shutil.copytree(real, tmp_path / real.name))
        if kind == "silent":
            keep_no_records(run)
        return run

    return copy


@pytest.fixture(scope="session")
def together(real_runs: RealRuns) -> Path:
    """A real run of two workers that share a model."""
    return real_runs.of("program")


@pytest.fixture(scope="session")
def alone(real_runs: RealRuns) -> Path:
    """A real run of two workers that each train a model of their own."""
    return real_runs.of("program_alone")


@pytest.fixture
def recorded(together: Path, tmp_path: Path) -> Path:
    """A copy of the run's folder."""
    return Path(shutil.copytree(together, tmp_path / PROGRAM_RUN_ID))


@pytest.fixture
def silent(recorded: Path) -> Path:
    """The same of a program that records nothing."""
    keep_no_records(recorded)
    return recorded

"""What tests of several folders share."""

import pytest

from tests.adversaries.real_runs import RealRuns


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> RealRuns:
    """Runs of real tasks, each trained once for all tests that look at it."""
    return RealRuns(tmp_path_factory.mktemp("runs"))

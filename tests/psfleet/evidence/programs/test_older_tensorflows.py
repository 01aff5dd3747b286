"""The adversaries that are programs are judged with an older TensorFlow as with psfleet's own."""

from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.corpus import CASES, Case
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.trainer.program.tensorflows import with_older_tensorflow

OF_PROGRAMS = [case for case in CASES if case.run.startswith(("tutorial", "phases_"))]


@with_older_tensorflow
@pytest.mark.chaos
@pytest.mark.parametrize("case", OF_PROGRAMS, ids=lambda case: case.name)
def test_a_program_gets_its_expected_verdict(real_runs: RealRuns, tmp_path: Path, case: Case) -> None:
    verdict = case.judge(real_runs, tmp_path)
    told = {check.check: check.detail for check in verdict.failing}
    assert case.is_judged_rightly(verdict), f"{verdict.verdict}: {told} {verdict.not_shown}"

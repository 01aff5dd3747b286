"""The runs of the corpus get the right verdict, from the checks that must find their fault.

`make adversaries` trains and judges the others, too: those that take long and whose checks have tests beside.
"""

import json
from pathlib import Path

import pytest

from psfleet.evidence.verdict import NOT_PROVEN, PROVEN
from tests.psfleet.evidence.adversaries.corpus import CASES, SHORT, Case, Verdicts
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.adversaries.table import rows, summary


@pytest.fixture(scope="module")
def verdicts(real_runs: RealRuns, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return Verdicts(real_runs, tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_each_run_gets_its_expected_verdict(verdicts: Verdicts, case: Case) -> None:
    verdict = verdicts[case.name]
    told = {check.check: check.detail for check in verdict.failing}
    assert case.is_judged_rightly(verdict), f"{verdict.verdict}: {told}"
    json.dumps(verdict.as_json(), allow_nan=False)


def test_no_bad_run_is_proven_and_every_good_run_is(verdicts: Verdicts) -> None:
    assert "false positives 0, false negatives 0, others judged wrongly 0." in summary(verdicts, SHORT)


def test_the_table_marks_runs_with_a_wrong_verdict(verdicts: Verdicts) -> None:
    bad, good = (next(case.name for case in SHORT if case.must_be == be) for be in (NOT_PROVEN, PROVEN))
    swapped = {case.name: verdicts[case.name] for case in SHORT} | {bad: verdicts[good], good: verdicts[bad]}
    assert "false positives 1, false negatives 1, others judged wrongly 0." in summary(swapped, SHORT)
    assert "| not proven | **proven**: nothing found |" in "\n".join(rows(swapped, SHORT))


@pytest.mark.parametrize("run", [pytest.param("slow", marks=pytest.mark.chaos), "asleep"])
def test_a_slow_worker_is_named_whether_or_not_the_run_is_proven(verdicts: Verdicts, run: str) -> None:
    (name,) = (case.name for case in CASES if case.run == run)
    assert verdicts[name].figures["stragglers"] == ["worker1"]


def test_cases_that_damage_a_run_damage_only_a_copy(verdicts: Verdicts, real_runs: RealRuns) -> None:
    """The original run is still proven after all cases that damage it."""
    assert verdicts["healthy"].verdict == PROVEN
    healthy = next(case for case in CASES if case.name == "healthy")
    assert healthy.judge(real_runs, Path()).verdict == PROVEN

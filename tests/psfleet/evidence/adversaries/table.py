"""The corpus as a table in Markdown, with the wrong verdicts."""

from collections.abc import Iterable, Mapping, Sequence

from psfleet.evidence.verdict import PROVEN, Verdict
from tests.psfleet.evidence.adversaries.corpus import CASES, Case
from tests.psfleet.evidence.cases import EVERY_CHECK

_HEAD = "| run | what was done | must be | is | found by |\n|---|---|---|---|---|"


def as_markdown(verdicts: Mapping[str, Verdict]) -> str:
    """Return the table of all cases, by the verdict of each name, and below it what was judged wrongly."""
    return "\n".join([_HEAD, *rows(verdicts, CASES), "", summary(verdicts, CASES)]) + "\n"


def rows(verdicts: Mapping[str, Verdict], cases: Sequence[Case]) -> list[str]:
    """Return the rows of some cases."""
    return [_row(case, verdicts[case.name]) for case in cases]


def summary(verdicts: Mapping[str, Verdict], cases: Sequence[Case]) -> str:
    """Return how many runs some cases are, and how many of them were judged wrongly, in a sentence."""
    proven = {case.name for case in cases if verdicts[case.name].verdict == PROVEN}
    good = {case.name for case in cases if case.must_be == PROVEN}
    wrong = {case.name for case in cases if not case.is_judged_rightly(verdicts[case.name])}
    return (
        f"{len(cases)} runs, {len(good)} of them must be proven: false positives {len(proven - good)}, "
        f"false negatives {len(good - proven)}, others judged wrongly {len(wrong - (proven ^ good))}."
    )


def _row(case: Case, verdict: Verdict) -> str:
    judged = verdict.verdict
    if not case.is_judged_rightly(verdict):
        judged = f"**{judged}**: {_names(check.check for check in verdict.failing) or 'nothing found'}"
    return f"| {case.name} | {case.done} | {case.must_be} | {judged} | {_found_by(case)} |"


def _found_by(case: Case) -> str:
    if case.checks == EVERY_CHECK:
        return case.found_by
    return _names(case.checks) + (f"; perhaps {_names(case.perhaps.split())}" if case.perhaps else "")


def _names(checks: Iterable[str]) -> str:
    return ", ".join(f"`{check}`" for check in sorted(checks))

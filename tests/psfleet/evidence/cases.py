"""Run folders with one damage or forgery each, and the expected verdict."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from tests.psfleet.evidence.run_folders import verdict_of

_UNREADABLE = Run(Path(), "unreadable", problem="nothing can be read")
EVERY_CHECK = {answer.check for answer in judge_run(_UNREADABLE, EvidenceSettings()).checks}
Damage = Callable[[Path], None]


@dataclass(frozen=True)
class Expected:
    """The verdict that a case expects.

    `failing` are the checks that keep the run from being proven (None: any), `said` is a part of what is
    said: it begins or ends with a line end where nothing is said before or behind it; `not_shown` is one of
    what is said to be open.
    """

    exit_code: int
    failing: str | None = None
    said: str = ""
    headline: str = ""
    not_shown: str = ""


@dataclass(frozen=True)
class Case:
    """A damaged run folder, and its verdict.

    `damage` changes the folder; a tuple of damages does it in this order. `kind` is the real run that is
    damaged, where the test has several.
    """

    damage: Damage | tuple[Damage, ...]
    expected: Expected
    kind: str = ""

    def hold(self, run: Path) -> None:
        """Damage the folder and judge it."""
        for damage in self.damage if isinstance(self.damage, tuple) else (self.damage,):
            damage(run)
        verdict, expected = verdict_of(run), self.expected
        assert verdict.exit_code == expected.exit_code, verdict.failing
        if expected.failing is not None:
            assert {check.check for check in verdict.failing} == checks_named(expected.failing)
        assert any(expected.said in f"\n{check.detail}\n" for check in verdict.checks), verdict.failing
        assert expected.headline in {"", verdict.headline.removeprefix("NOT PROVEN: ")}
        assert expected.not_shown in "\n".join(verdict.not_shown)
        json.dumps(verdict.as_json(), allow_nan=False)


def checks_named(names: str) -> set[str]:
    """The checks that a case names."""
    return EVERY_CHECK if names == "every check" else set(names.split())


def cases(named: Mapping[str, Case]) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each case, under the name of the case."""
    return pytest.mark.parametrize("case", list(named.values()), ids=list(named))

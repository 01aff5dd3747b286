"""Run folders with one damage or forgery each, and the expected verdict."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Concatenate, ParamSpec

import pytest

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from tests.psfleet.evidence.run_folders import verdict_of

_UNREADABLE = Run(Path(), "unreadable", problem="nothing can be read")
EVERY_CHECK = {answer.check for answer in judge_run(_UNREADABLE, EvidenceSettings()).checks}
Damage = Callable[[Path], None]
P = ParamSpec("P")


def do(change: Callable[Concatenate[Path, P], object], *told: P.args, **by_name: P.kwargs) -> Damage:
    """Return the damage that this change does to a run's folder."""

    def damage(run: Path) -> None:
        change(run, *told, **by_name)

    return damage


ANY = "any"


@dataclass(frozen=True)
class Case:
    """A damaged run folder, and the verdict expected.

    `damage` changes the folder; a tuple of damages does it in this order. `said` is a part of what the check
    says, or of what is not shown: it begins or ends with a line end where nothing is said before or behind
    it. `failing` are the checks that keep the run from being proven: by default the check alone, with ANY
    also others. `kind` is the real run that is damaged, and `asked` are thresholds.
    """

    damage: Damage | tuple[Damage, ...]
    exit_code: int
    said: str = ""
    failing: str = ""
    headline: str = ""
    kind: str = ""
    asked: Mapping[str, object] = field(default_factory=dict)
    check: str = ""

    def hold(self, run: Path) -> None:
        """Damage the folder and judge it."""
        for damage in self.damage if isinstance(self.damage, tuple) else (self.damage,):
            damage(run)
        verdict = verdict_of(run, **self.asked)
        assert verdict.exit_code == self.exit_code, verdict.failing
        expected = checks_named(self.failing or self.check) if self.exit_code else set()
        assert self.failing == ANY or {check.check for check in verdict.failing} == expected
        details = [check.detail for check in verdict.checks if check.check == self.check]
        assert any(self.said in f"\n{text}\n" for text in (*details, *verdict.not_shown)), details
        assert self.headline in {"", verdict.headline.removeprefix("NOT PROVEN: ")}
        json.dumps(verdict.as_json(), allow_nan=False)


def checks_named(names: str) -> set[str]:
    """The checks that a case names."""
    return EVERY_CHECK if names == "every check" else set(names.split())


def cases(kind: str = "healthy", **of_checks: Mapping[str, Case]) -> pytest.MarkDecorator:
    """Return the mark that runs a test once for each case, under the names of its check and its own.

    `of_checks` has the cases of each check by its name; `kind` is that of cases that name none.
    """
    every = {
        f"{check}: {name}": replace(case, check=check, kind=case.kind or kind)
        for check, named in of_checks.items()
        for name, case in named.items()
    }
    return pytest.mark.parametrize("case", list(every.values()), ids=list(every))

"""Tables of run folders with one damage or forgery each, and the expected verdict."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from tests.psfleet.evidence import damages, run_folders

FOLDER = Path(__file__).with_name("judged")
_UNREADABLE = Run(Path(), "unreadable", problem="nothing can be read")
EVERY_CHECK = {answer.check for answer in judge_run(_UNREADABLE, EvidenceSettings()).checks}
Steps = Mapping[str, Mapping[str, Any] | None]


@dataclass(frozen=True)
class Case:
    """An entry of a table in `judged`.

    `damage` has the functions that change the folder, with their arguments; a list of these has one twice.
    `failing` are the checks that keep the run from being proven (None: any), `said` is a part of what is
    said: it begins or ends with a line end where nothing is said before or behind it; `not_shown` is one of
    what is said to be open. `kind` is the real run
    that is damaged, where the test has several.
    """

    functions: Mapping[str, Any]
    damage: Steps | list[Steps]
    exit_code: int
    failing: str | None = None
    said: str = ""
    headline: str = ""
    not_shown: str = ""
    kind: str = ""

    def hold(self, run: Path) -> None:
        """Damage the folder and judge it."""
        for steps in self.damage if isinstance(self.damage, list) else [self.damage]:
            for name, arguments in steps.items():
                self.functions[name](run, **(arguments or {}))
        verdict = run_folders.verdict_of(run)
        assert verdict.exit_code == self.exit_code, verdict.failing
        if self.failing is not None:
            assert {check.check for check in verdict.failing} == checks_named(self.failing)
        assert any(self.said in f"\n{check.detail}\n" for check in verdict.checks), verdict.failing
        assert self.headline in {"", verdict.headline.removeprefix("NOT PROVEN: ")}
        assert self.not_shown in "\n".join(verdict.not_shown)
        json.dumps(verdict.as_json(), allow_nan=False)


def checks_named(names: str) -> set[str]:
    """The checks of a table's words."""
    return EVERY_CHECK if names == "every check" else set(names.split())


def cases(table: str, functions: Mapping[str, Any]) -> pytest.MarkDecorator:
    """Ask a test for each case of a table; `functions` are those of its own that damage a folder."""
    found = yaml.safe_load((FOLDER / f"{table}.yml").read_text(encoding="utf-8"))
    known = {**vars(run_folders), **vars(damages), **functions}
    return pytest.mark.parametrize("case", [Case(known, **case) for case in found.values()], ids=list(found))

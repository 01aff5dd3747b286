"""The corpus: corpus.yml has every run, what was done to it, how it must be judged, and by which checks.

`make adversaries` trains and judges them all and prints them as a table.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from psfleet.evidence.verdict import Verdict
from tests.psfleet.evidence import folder_damages
from tests.psfleet.evidence.adversaries import damages_from_real_runs
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.cases import checks_named
from tests.psfleet.evidence.run_folders import RUN_ID, verdict_of


@dataclass(frozen=True)
class Case:
    """A run, and how it must be judged: an entry of corpus.yml, which says what its fields are."""

    name: str
    done: str
    run: str
    must_be: str
    found_by: str = ""
    perhaps: str = ""
    damage: str = ""
    said: str = ""
    long: bool = False

    @property
    def checks(self) -> set[str]:
        """The checks that keep it from being proven."""
        return checks_named(self.found_by)

    def judge(self, runs: RealRuns, folder: Path) -> Verdict:
        """Judge the run by the default thresholds; `folder` is empty and takes the copy that is damaged."""
        run = runs.of(self.run)
        if self.damage:
            run = Path(shutil.copytree(run, folder / RUN_ID))
            with_others: Callable[[Path, RealRuns], None] | None = getattr(
                damages_from_real_runs, self.damage, None
            )
            if with_others is not None:
                with_others(run, runs)
            else:
                getattr(folder_damages, self.damage)(run)
        return verdict_of(run)

    def is_judged_rightly(self, verdict: Verdict) -> bool:
        """Whether it is what it must be, by the checks that must find it."""
        failing = {check.check for check in verdict.failing}
        maybe = self.checks | set(self.perhaps.split())
        told = [*(check.detail for check in verdict.checks), *verdict.not_shown]
        said = any(self.said in each for each in told)
        return verdict.verdict == self.must_be and self.checks <= failing <= maybe and said


_ENTRIES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yml").read_text())
CASES = tuple(Case(**entry) for entry in _ENTRIES)
SHORT = tuple(case for case in CASES if not case.long)


class Verdicts(dict[str, Verdict]):
    """The verdict on each case by its name, found when it is first asked for: training takes a while."""

    def __init__(self, runs: RealRuns, folder: Path) -> None:
        """Take the runs, and a folder for what is damaged."""
        super().__init__()
        self._runs, self._folder = runs, folder

    def __missing__(self, name: str) -> Verdict:
        """Judge a case."""
        number, case = next((number, case) for number, case in enumerate(CASES) if case.name == name)
        place = self._folder / str(number)
        place.mkdir(parents=True)
        return self.setdefault(name, case.judge(self._runs, place))

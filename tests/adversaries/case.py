"""One run of the corpus: what was done to it, and how it must be judged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.adversaries.real_runs import RealRuns
from tests.evidence.run_folders import RUN_ID, verdict_of
from trainer.evidence.verdict import CANNOT_TELL, NOT_PROVEN, PROVEN, Verdict

Damage = Callable[[Path, RealRuns], None]


@dataclass(frozen=True)
class Case:
    """A run, and how it must be judged.

    Attributes:
        name: of the case, in a few words.
        done: what is special about the run, in a sentence.
        run: the name of the real run (real_runs.py) whose folder is judged.
        must_be: the verdict.
        found_by: the checks that keep it from being proven, and no others.
        perhaps_by: checks that may do so, too: the order of a few steps, which is chance, decides.
        damage: what is done to a copy of the folder before; None for the folder as the tasks left it.

    """

    name: str
    done: str
    run: str
    must_be: str
    found_by: frozenset[str] = frozenset()
    perhaps_by: frozenset[str] = frozenset()
    damage: Damage | None = None

    def judge(self, runs: RealRuns, folder: Path) -> Verdict:
        """Judge the run by the default thresholds; `folder` is empty and takes the copy that is damaged."""
        run = runs.of(self.run)
        if self.damage is not None:
            run = Path(shutil.copytree(run, folder / RUN_ID))
            self.damage(run, runs)
        return verdict_of(run)

    def is_judged_rightly(self, verdict: Verdict) -> bool:
        """Whether it is what it must be, by the checks that must find it."""
        failing = {check.check for check in verdict.failing}
        return verdict.verdict == self.must_be and self.found_by <= failing <= self.found_by | self.perhaps_by


def of_run(damage: Callable[[Path], None]) -> Damage:
    """Take a damage that needs no other runs."""
    return lambda run, _runs: damage(run)


def proven(name: str, done: str, run: str, damage: Damage | None = None) -> Case:
    """A run that must be proven."""
    return Case(name, done, run, PROVEN, damage=damage)


def not_proven(
    name: str,
    done: str,
    run: str,
    *found_by: str,
    perhaps_by: Iterable[str] = (),
    damage: Damage | None = None,
) -> Case:
    """A run that must not be proven, and the checks that contradict it."""
    return Case(name, done, run, NOT_PROVEN, frozenset(found_by), frozenset(perhaps_by), damage)


def cannot_tell(name: str, done: str, damage: Damage, *found_by: str, perhaps_by: Iterable[str] = ()) -> Case:
    """A healthy run that was damaged so that nobody can tell, and the checks that lack evidence."""
    return Case(name, done, "healthy", CANNOT_TELL, frozenset(found_by), frozenset(perhaps_by), damage)

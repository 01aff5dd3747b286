"""A run's folder that is damaged or forged in one way, and what must be said of it."""

import json
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from tests.psfleet.evidence.run_folders import verdict_of


@dataclass(frozen=True)
class Expected:
    """The exit code, the checks that keep the run from being proven (None: any), a part of what is said.

    `said` begins or ends with a line end where nothing is said before or behind it.
    """

    damage: Callable[[Path], None]
    exit_code: int
    failing: Set[str] | None
    said: str
    headline: str = ""

    def __str__(self) -> str:
        """What must be said of the damage."""
        return self.said.strip() or "nothing wrong"

    def hold(self, run: Path) -> None:
        """Damage the folder and judge it."""
        self.damage(run)
        verdict = verdict_of(run)
        assert verdict.exit_code == self.exit_code, verdict.failing
        if self.failing is not None:
            assert {check.check for check in verdict.failing} == self.failing
        assert any(self.said in f"\n{check.detail}\n" for check in verdict.checks), verdict.failing
        assert self.headline in {"", verdict.headline.removeprefix("NOT PROVEN: ")}
        json.dumps(verdict.as_json(), allow_nan=False)

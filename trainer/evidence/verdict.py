"""The verdict on a run: all checks, the figures, and what they amount to in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.evidence import accounting, apart, checks, contributions, convergence, settling, sharing
from trainer.evidence.check import Check, counted
from trainer.evidence.figures import figures_of
from trainer.evidence.log_patterns import log_patterns_found
from trainer.evidence.manifest import FILE_NAME as MANIFEST
from trainer.evidence.manifest import files_unchanged
from trainer.evidence.program import headline_of, judge_program
from trainer.evidence.reading import read_run
from trainer.evidence.run import Run
from trainer.evidence.settings import EvidenceSettings
from trainer.evidence.whole_file import write_whole

PROVEN, COMPLETED, NOT_PROVEN, CANNOT_TELL = "proven", "completed", "not proven", "cannot tell"
EXIT_CODES = {PROVEN: 0, COMPLETED: 0, NOT_PROVEN: 1, CANNOT_TELL: 2}
FILE_NAME = "verdict.json"

_SHARING = {
    "same_parameter_servers",
    "workers_met",
    "servers_met",
    "contributions_add_up",
    "fair_shares",
    "workers_overlap",
    "steps_interleave",
    "steps_accounted",
    "fingerprints_agree",
}
_CONVERGENCE = {"loss_finite", "loss_fell", "loss_settled", "model_converged"}


@dataclass(frozen=True)
class Verdict:
    """What `verdict.json` holds. `settings` are the thresholds that were applied.

    `verdict` is `proven` where every check is true, or `completed` where the checks that the run allows show
    too little for that; `not proven` where one is false, else `cannot tell`. `not_shown` says, in sentences,
    what the run does not show.
    """

    run_id: str
    verdict: str
    headline: str
    checks: tuple[Check, ...]
    figures: Mapping[str, Any]
    settings: EvidenceSettings
    not_shown: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0, 1 or 2."""
        return EXIT_CODES[self.verdict]

    @property
    def failing(self) -> tuple[Check, ...]:
        """The checks that keep the run from being proven: those that are false, else those unknown."""
        wrong = tuple(check for check in self.checks if check.ok is False)
        return wrong or tuple(check for check in self.checks if check.ok is None)

    def as_json(self) -> dict[str, object]:
        """Return the object of docs/architecture.md."""
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "run_id": self.run_id,
            "headline": self.headline,
            "checks": [check.as_json() for check in self.checks],
            "not_shown": list(self.not_shown),
            "figures": dict(self.figures),
            "settings": self.settings.as_dict(),
        }

    def write(self, folder: Path) -> None:
        """Put verdict.json into the run's folder, in one piece. Raises OSError."""
        text = json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"
        write_whole(folder / FILE_NAME, text.encode())


def judge(folder: Path, settings: EvidenceSettings, run_id: str | None = None) -> Verdict:
    """Read a run's folder and judge it. Whatever the folder holds, this does not raise for it.

    `run_id` is whose records must be there; without one, that is told by the folder's name or by the records.
    """
    return judge_run(read_run(folder, run_id), settings)


def judge_run(run: Run, settings: EvidenceSettings) -> Verdict:
    """Judge a run that was read."""
    unchanged = [files_unchanged(run.folder)] if (run.folder / MANIFEST).exists() else []
    if run.program is not None and not run.problem:
        answers = judge_program(run, settings)
        answers.checks += unchanged
        best = PROVEN if answers.together and answers.learned else COMPLETED
        verdict = _verdict(answers.checks, best)
        headline = (
            _cannot_tell(answers.checks) if verdict == CANNOT_TELL else headline_of(run, answers, verdict)
        )
        figures = figures_of(run)
        return Verdict(
            run.run_id, verdict, headline, tuple(answers.checks), figures, settings, answers.not_shown
        )
    found = _checks(run, settings)
    if run.problem:
        found = tuple(Check(check.check, None, run.problem) for check in found)
    found = (*found, *unchanged)
    verdict = _verdict(found)
    return Verdict(run.run_id, verdict, _headline(run, found, verdict), found, figures_of(run), settings)


def _checks(run: Run, settings: EvidenceSettings) -> tuple[Check, ...]:
    """What is asked of a run of the trainer's own models."""
    return (
        checks.records_complete(run),
        checks.same_plan_and_release(run),
        checks.same_settings(run),
        checks.ended_well(run),
        checks.no_restart_from_zero(run),
        sharing.same_parameter_servers(run),
        sharing.workers_met(run),
        *([sharing.servers_met(run)] if run.servers else []),
        contributions.contributions_add_up(run),
        sharing.fair_shares(run, settings),
        sharing.workers_overlap(run, settings),
        sharing.steps_interleave(run),
        accounting.steps_accounted(run),
        apart.fingerprints_agree(run),
        convergence.loss_finite(run),
        convergence.loss_fell(run, settings),
        settling.loss_settled(run, settings),
        apart.evaluated_apart(run),
        convergence.model_converged(run, settings),
        *([log_patterns_found(run, settings.log_patterns)] if settings.log_patterns else []),
    )


def _verdict(answers: Sequence[Check], best: str = PROVEN) -> str:
    found = {check.ok for check in answers}
    return NOT_PROVEN if False in found else CANNOT_TELL if None in found else best


def _cannot_tell(answers: Sequence[Check]) -> str:
    lacking = sum(check.ok is None for check in answers)
    return f"CANNOT TELL: nothing speaks against the run, but {counted(lacking, 'check')} lacked evidence"


def _headline(run: Run, answers: Sequence[Check], verdict: str) -> str:
    together = run.profile.together(counted(len(run.ps), "ps"))
    if verdict == PROVEN:
        return f"PROVEN: {together}, and it converged"
    if verdict == CANNOT_TELL:
        return _cannot_tell(answers)
    return f"NOT PROVEN: {_what_is_wrong(answers, together)}"


def _what_is_wrong(answers: Sequence[Check], together: str) -> str:
    """Name the gravest of what fails: not shared, diverged, ended badly, not converged."""
    wrong = {check.check for check in answers if check.ok is False}
    if "files_unchanged" in wrong:
        return "files of the run were changed after they were collected"
    if wrong & _SHARING:
        return f"nothing shows that {together}"
    if "loss_finite" in wrong:
        return "training diverged"
    if "evaluated_apart" in wrong:
        return "who took no part does not find the model that the chief evaluated"
    if not wrong <= _CONVERGENCE:
        return "the run did not end well, or these are not its records alone"
    shared = all(check.ok for check in answers if check.check in _SHARING)
    return f"{together}, but it did not converge" if shared else "the model did not converge"

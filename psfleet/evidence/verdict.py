"""The verdict on a run: all checks, the figures, and their summary in one sentence."""

import json
import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psfleet.evidence import convergence, final_model, record_checks, sharing
from psfleet.evidence.absences import absences_in_words
from psfleet.evidence.answer import Answer, counted
from psfleet.evidence.card import Group, checks_of
from psfleet.evidence.contributions import contributions_add_up
from psfleet.evidence.early_end import early_end_of
from psfleet.evidence.endings import HOST
from psfleet.evidence.figures import figures_of
from psfleet.evidence.gradients import gradients_fit_loss
from psfleet.evidence.log_patterns import log_patterns
from psfleet.evidence.lost_workers import lost_workers, lost_workers_in_words
from psfleet.evidence.older_releases import GRADIENTS, could_record, release_of, unrecorded_clauses
from psfleet.evidence.parts import judged_in_parts
from psfleet.evidence.program_checks import FALLEN, TOGETHER, ProgramAnswers, judge_program, sentences
from psfleet.evidence.ps_restores import ps_restores_in_words
from psfleet.evidence.reasons import reasons_without_a_step
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.run_manifest import FILE_NAME as MANIFEST
from psfleet.evidence.run_manifest import files_unchanged
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.steps_accounted import steps_accounted
from psfleet.evidence.untrusted_files import write_whole
from trainer.contract.json_files import finite
from trainer.host.wording import first_of

PROVEN, COMPLETED, NOT_PROVEN, CANNOT_TELL = "proven", "completed", "not proven", "cannot tell"
EXIT_CODES = {PROVEN: 0, COMPLETED: 0, NOT_PROVEN: 1, CANNOT_TELL: 2}
FILE_NAME = "verdict.json"

_SHARING, _CONVERGENCE = checks_of(Group.SHARING), checks_of(Group.CONVERGENCE)
# ((names of checks, what the headline says if one of them is false), ...), the gravest first.
_Gravest = tuple[tuple[Set[str], str], ...]


@dataclass(frozen=True)
class Verdict:
    """The content of `verdict.json`; `settings` are the thresholds that were applied.

    `verdict` is `not proven` if a check is False; else `cannot tell` if one is None (unknown); else `proven`,
    or `completed` if the checks that a program allows show too little for that. `not_shown` lists, in
    sentences, what the run does not show. `reasons` say why tasks failed, if no task took a step.
    """

    run_id: str
    verdict: str
    headline: str
    checks: tuple[Answer, ...]
    figures: Mapping[str, Any]
    settings: EvidenceSettings
    not_shown: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict: 0 proven or completed, 1 not proven, 2 cannot tell."""
        return EXIT_CODES[self.verdict]

    @property
    def failing(self) -> tuple[Answer, ...]:
        """The answers that keep the run from being proven: the False ones; without any, the unknown ones.

        () if all answers are True.
        """
        wrong = tuple(check for check in self.checks if check.ok is False)
        return wrong or tuple(check for check in self.checks if check.ok is None)

    def as_json(self) -> object:
        """Return the content of verdict.json as docs/contracts.md describes it, as Python objects.

        A number that is not finite is None.
        """
        return finite(
            {
                "verdict": self.verdict,
                "exit_code": self.exit_code,
                "run_id": self.run_id,
                "headline": self.headline,
                "checks": [vars(check) for check in self.checks],
                "not_shown": self.not_shown,
                "reasons": self.reasons,
                "figures": self.figures,
                "settings": self.settings.as_dict(),
            }
        )

    def write(self, folder: Path) -> None:
        """Write verdict.json into the run's folder atomically, over an existing one. Raises OSError."""
        text = json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"
        write_whole(folder / FILE_NAME, text.encode())


def judge_run(run: Run, settings: EvidenceSettings) -> Verdict:
    """Return the verdict on a run by these thresholds. No content of its folder makes this raise.

    If `run.problem` is set, every check but `files_unchanged` is unknown, with the problem as its text.
    """
    of_program = judge_program(run, settings) if run.program is not None and not run.problem else None
    answers = of_program.checks if of_program else _checks_of(run, settings)
    older = unrecorded_clauses(run, observed=bool(of_program and of_program.observed))
    not_shown = of_program.not_shown if of_program else sentences(older)
    if os.path.lexists(run.folder / MANIFEST):
        answers.append(files_unchanged(run.folder, run.run_id))
    elif not run.problem:
        not_shown += (
            f"It is not shown that the files are those that were collected: there is no {MANIFEST}.",
        )
    wrong = {answer.check for answer in answers if answer.ok is False}
    reasons = reasons_without_a_step(run) if "files_unchanged" not in wrong else ()
    lacking = sum(answer.ok is None for answer in answers)
    if wrong:
        verdict = NOT_PROVEN
        gravest = _wrong_in_a_program(wrong) if of_program else _wrong_in_a_model(run, answers, wrong)
        of_files = ({"files_unchanged"}, "files of the run were changed after they were collected")
        words = next(words for checks, words in (of_files, *gravest) if wrong & checks)
    elif lacking:
        verdict = CANNOT_TELL
        words = f"no check failed, but {counted(lacking, 'check')} lacked evidence"
    elif of_program:
        verdict = PROVEN if of_program.together and of_program.learned else COMPLETED
        words = _shown_by_a_program(run, of_program, verdict)
    else:
        verdict, words = PROVEN, f"{run.rules.together(counted(len(run.ps), 'ps'))}, and it converged"
    if not (wrong or lacking):
        words += _numbers_of_parts(run)
        words += f"; judged by the checks of release {release_of(run)}, which recorded it" if older else ""
        early = f"it ended early: {end}" if (end := early_end_of(run)) else ""
        words += "".join(
            f"; {who}"
            for who in (
                early,
                ps_restores_in_words(run),
                absences_in_words(run),
                lost_workers_in_words(lost_workers(run)),
            )
            if who
        )
    if reasons:
        words = "the program failed before any step was seen" if of_program else "no task took a step"
    if verdict in {NOT_PROVEN, CANNOT_TELL} and "files_unchanged" not in wrong:
        words = _lost_with_hosts(run) or ("" if of_program else _given_up(run)) or words
    headline = f"{verdict.upper()}: {words}"
    return Verdict(
        run.run_id, verdict, headline, tuple(answers), figures_of(run), settings, not_shown, reasons
    )


def _lost_with_hosts(run: Run) -> str:
    """Return in words which tasks were lost with their hosts; "" if none was, or without a usable tasks.json.

    A task is lost if tasks.json lacks it, because its host did not answer when the run ended, or if it says
    that the host went down. This comes first in the headline, because it explains all that is missing.
    """
    if not run.endings or run.unusable_endings:
        return ""
    lost = [
        task
        for task in run.expected
        if task.name not in run.endings or run.endings[task.name].ended_by == HOST
    ]
    names, hosts = [task.name for task in lost], list(dict.fromkeys(task.host for task in lost))
    verb = "was" if len(names) == 1 else "were"
    return f"{first_of(names)} {verb} lost with {first_of(hosts, 3, ' and ')}" if lost else ""


def _given_up(run: Run) -> str:
    """Return, in words, which tasks failed by systemd and recorded no end; "" if there are none.

    Of more than ten, the first ten and how many more there are.
    """
    return first_of(
        [
            f"{task.name} {ending.in_words} on {task.host}"
            for task in run.expected
            if (ending := run.given_up(task.name))
        ]
    )


def _checks_of(run: Run, settings: EvidenceSettings) -> list[Answer]:
    answers = [
        record_checks.records_complete(run),
        judged_in_parts(record_checks.same_plan_and_release, run),
        judged_in_parts(record_checks.same_settings, run),
        record_checks.ended_well(run),
        record_checks.no_restart_from_zero(run),
        judged_in_parts(sharing.same_parameter_servers, run),
        judged_in_parts(sharing.workers_met, run),
        *([judged_in_parts(sharing.servers_met, run)] if run.servers else []),
        judged_in_parts(contributions_add_up, run),
        judged_in_parts(lambda part: sharing.fair_shares(part, settings), run),
        judged_in_parts(lambda part: sharing.workers_overlap(part, settings), run),
        judged_in_parts(sharing.steps_interleave, run),
        judged_in_parts(steps_accounted, run),
        *([judged_in_parts(gradients_fit_loss, run)] if could_record(run, GRADIENTS) else []),
        final_model.fingerprints_agree(run),
        convergence.loss_finite(run),
        convergence.loss_fell(run, settings),
        convergence.loss_settled(run, settings),
        final_model.evaluated_apart(run),
        convergence.model_converged(run, settings),
        *([log_patterns(run, settings.log_patterns)] if settings.log_patterns else []),
    ]
    return [Answer(answer.check, None, run.problem) for answer in answers] if run.problem else answers


def _numbers_of_parts(run: Run) -> str:
    """Return the numbers of ps and workers in the parts of a run, in words; "" if all parts had the same.

    Example: "; its workers were 2, then 3". The text also is "" for a run without parts.
    """
    numbers = {
        "ps": [len(part.ps) for part in run.parts],
        "workers": [len(part.workers) for part in run.parts],
    }
    return "".join(
        f"; its {what} were {', then '.join(map(str, of_parts))}"
        for what, of_parts in numbers.items()
        if len(set(of_parts)) > 1
    )


def _wrong_in_a_model(run: Run, answers: Sequence[Answer], wrong: Set[str]) -> _Gravest:
    together = run.rules.together(counted(len(run.ps), "ps"))
    shared = all(answer.ok for answer in answers if answer.check in _SHARING)
    # A worker that is lost during the run could not share any more.
    lost = {"ended_well"} if set() < wrong & _SHARING <= {"workers_overlap", "fair_shares"} else set()
    return (
        (lost, "not every worker took part to the end"),
        (_SHARING, f"nothing shows that {together}"),
        ({"loss_finite"}, "training diverged"),
        ({"gradients_fit_loss"}, "a worker did not push the gradients of its loss"),
        (
            {"evaluated_apart"},
            "the evaluator, which took no part, does not find the model that the clients evaluated",
        ),
        (wrong - _CONVERGENCE, "the run did not end well, or these are not its records alone"),
        (wrong, f"{together}, but it did not converge" if shared else "the model did not converge"),
    )


def _wrong_in_a_program(wrong: Set[str]) -> _Gravest:
    of_logs = wrong if wrong == {"log_patterns"} else set()
    return (
        ({"tasks_ended_well"}, "the program did not end well on every task"),
        (_SHARING, f"nothing shows that {TOGETHER}"),
        (of_logs, "the program's logs do not match training_evidence_log_patterns"),
        (wrong, "the program's records contradict it"),
    )


def _shown_by_a_program(run: Run, answers: ProgramAnswers, verdict: str) -> str:
    if verdict == COMPLETED:
        what = next(iter(answers.open), "")
        if answers.together and FALLEN in answers.open:
            what = FALLEN
        return f"the program ended well on {counted(len(run.expected), 'task')}; it is not shown that {what}"
    taking_part = run.contributions if run.coordinated else run.workers
    workers = counted(len(taking_part), "worker")
    together = f"{workers} moved one global step together" if run.rules.shared else f"{workers} trained"
    if answers.observed:
        through = f" through {counted(len(run.ps), 'ps')}" if run.ps else ""
        together = f"{workers} trained one model together{through}"
    by = "by what psfleet saw of the program" if answers.observed else "by the records of the program"
    return f"{by} {together}, and it learned"

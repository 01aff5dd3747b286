"""The corpus: every run, what was done to it, what it must be judged to be, and by which checks.

`python -m tests.adversaries` trains and judges them all and prints the table of docs/verdict.md.
"""

from __future__ import annotations

from pathlib import Path

from tests.adversaries import damages
from tests.adversaries.case import cannot_tell, not_proven, of_run, proven
from tests.adversaries.real_runs import RealRuns
from tests.evidence.damages import (
    cut_in_the_middle,
    cut_the_last_line,
    double_every_line,
    lose_a_number_in_the_loss,
    lose_everything,
    reverse_the_steps,
    shift_a_clock,
)
from tests.evidence.replications import ASYNC_ON_SERVERS, IN_GRAPH, LOCAL, SYNC
from tests.evidence.run_folders import UNSHARED
from trainer.evidence.run import Run
from trainer.evidence.settings import EvidenceSettings
from trainer.evidence.verdict import Verdict, judge_run

_CUT = frozenset({"records_complete", "ended_well", "steps_accounted", "fingerprints_agree"})
_UNREADABLE = Run(Path(), "unreadable", problem="nothing can be read")
EVERY_CHECK = frozenset(check.check for check in judge_run(_UNREADABLE, EvidenceSettings()).checks)

CASES = (
    not_proven(
        "each worker on its own ps",
        "Two workers learned the same line, each through a ps of its own.",
        "each_on_its_own_ps",
        *UNSHARED,
        "fingerprints_agree",
    ),
    not_proven(
        "two of three sharing",
        "Two workers shared a ps, the third had one of its own.",
        "third_worker_on_its_own_ps",
        *UNSHARED,
        # The two may have ended a step later than the third; parameters of different steps are not compared.
        perhaps_by={"fingerprints_agree"},
    ),
    not_proven(
        "a worker that nobody knows",
        "Three workers trained, of which the plan and the records know two.",
        "three_workers",
        "contributions_add_up",
        "steps_accounted",
        damage=damages.leave_out_worker2,
    ),
    not_proven(
        "one worker asleep",
        "Worker 1 stood still (SIGSTOP) from its 20th step until 95 % of the run were over.",
        "asleep",
        "fair_shares",
    ),
    not_proven(
        "joined for the last 1 %",
        "Worker 1 took its first step when 99 % of the run were over.",
        "joined_late",
        "fair_shares",
        "workers_overlap",
    ),
    not_proven(
        "begun anew from zero",
        "Chief and ps were killed, the checkpoints removed; both came back and trained to the end.",
        "begun_anew",
        "no_restart_from_zero",
        "contributions_add_up",
        perhaps_by={"steps_accounted"},
    ),
    not_proven(
        "diverged",
        "The learning rate was 1e30.",
        "diverged",
        "ended_well",
        "loss_finite",
        # Of three steps or so nobody knows who took them.
        perhaps_by={"fair_shares", "workers_overlap", "steps_interleave"},
    ),
    not_proven(
        "nothing learned",
        "The learning rate was 1e-9.",
        "learned_nothing",
        "loss_fell",
        "loss_settled",
        "model_converged",
    ),
    not_proven(
        "a plateau above the target",
        "Ten digits were to go through one hidden unit: the loss fell at first, and no further.",
        "plateau",
        "loss_settled",
        "model_converged",
    ),
    not_proven(
        "a plateau, told well",
        "The same, but the chief's records tell an accuracy of 0.97.",
        "plateau",
        "loss_settled",
        "model_converged",
        "evaluated_apart",
        damage=damages.claim_a_good_accuracy,
    ),
    not_proven(
        "NaN",
        "One window of worker 1 has a loss that was no number.",
        "healthy",
        "loss_finite",
        damage=of_run(lose_a_number_in_the_loss),
    ),
    not_proven(
        "records reordered",
        "The windows of worker 1 stand in its file in reverse order.",
        "healthy",
        "records_complete",
        "no_restart_from_zero",
        damage=of_run(reverse_the_steps),
    ),
    not_proven(
        "records of another run",
        "The file of worker 1 is that of another run.",
        "healthy",
        "records_complete",
        damage=damages.take_the_records_of_another_run,
    ),
    not_proven(
        "records of another run, renamed",
        "The same, with the run id and the plan of this run written over its own.",
        "healthy",
        "same_parameter_servers",
        "workers_met",
        "contributions_add_up",
        "steps_accounted",
        damage=damages.take_the_records_of_another_run_as_its_own,
    ),
    not_proven(
        "an old file left in the folder",
        "A file of a third worker lies there, of an earlier run that had one.",
        "healthy",
        "records_complete",
        damage=damages.keep_an_older_file,
    ),
    not_proven(
        "old records left in a file",
        "The file of worker 1 begins with its records of an earlier run.",
        "healthy",
        "records_complete",
        damage=damages.keep_older_records,
    ),
    not_proven(
        "another fingerprint",
        "Worker 1 read the parameters of another run in the end.",
        "healthy",
        "fingerprints_agree",
        damage=damages.read_the_parameters_of_another_run,
    ),
    not_proven(
        "another checkpoint evaluated",
        "Who took no part evaluated the last checkpoint but one.",
        "noisy",
        "evaluated_apart",
        damage=damages.evaluate_an_earlier_checkpoint,
    ),
    not_proven(
        "changed after it was collected",
        "The last loss of worker 1 was told 1 % lower when the manifest had been written.",
        "healthy",
        "files_unchanged",
        damage=damages.change_a_loss_after_collection,
    ),
    cannot_tell(
        "a worker's file cut short",
        "The last line of worker 1 lacks its end.",
        of_run(cut_the_last_line),
        *_CUT,
    ),
    cannot_tell(
        "two thirds of a file cut off",
        "Of the file of worker 1 a third is left.",
        of_run(cut_in_the_middle),
        *_CUT,
        "contributions_add_up",
        "workers_overlap",
    ),
    cannot_tell(
        "the chief's file cut short",
        "The last line of the chief lacks its end.",
        damages.cut_the_chiefs_last_line,
        *_CUT,
        "contributions_add_up",
        "fair_shares",
        "model_converged",
    ),
    cannot_tell(
        "records doubled",
        "Every line of worker 1 is there twice.",
        of_run(double_every_line),
        "records_complete",
    ),
    cannot_tell(
        "a worker's file empty",
        "The file of worker 1 has no line.",
        damages.empty_the_file_of_a_worker,
        "records_complete",
        "same_plan_and_release",
        "same_settings",
        "ended_well",
        "same_parameter_servers",
        "workers_met",
        "contributions_add_up",
        "workers_overlap",
        "steps_interleave",
        "steps_accounted",
        "fingerprints_agree",
    ),
    cannot_tell(
        "the ps's file empty",
        "The file of the ps has no line.",
        damages.empty_the_file_of_the_ps,
        "records_complete",
        "same_plan_and_release",
    ),
    cannot_tell(
        "no evaluation",
        "Who took no part left nothing.",
        damages.lose_the_evaluation,
        "fingerprints_agree",
        "evaluated_apart",
    ),
    cannot_tell("an empty folder", "The run's folder is empty.", of_run(lose_everything), *EVERY_CHECK),
    proven("healthy", "Two workers, one ps.", "healthy"),
    proven("three workers", "Three workers, one ps.", "three_workers"),
    proven("synchronous, with a backup", "Three workers, two gradients to a step, two ps.", SYNC),
    proven("in-graph", "One client, three workers with servers of their own.", IN_GRAPH),
    proven("existing servers", "Two workers that are clients of servers of their own.", ASYNC_ON_SERVERS),
    proven("local", "One process, without ps.", LOCAL),
    proven("a worker five times slower", "Worker 0 took five steps to each of worker 1.", "slow"),
    proven(
        "a worker killed in the middle",
        "Worker 1 was killed (SIGKILL) after 150 steps and started again.",
        "killed_and_back",
    ),
    proven("noise", "One example to a step: the losses are all over the place.", "noisy"),
    proven(
        "clock of a worker's host fast",
        "The clock of worker 1 is ten minutes ahead, and its machine counts the seconds from another start.",
        "healthy",
        of_run(shift_a_clock),
    ),
    proven(
        "clock of the chief's host slow",
        "All times of the chief, and of who evaluated there, are ten minutes behind.",
        "healthy",
        damages.shift_the_clock_of_the_chief,
    ),
    proven(
        "an old log left in the folder",
        "Logs of an earlier run that diverged lie in logs/.",
        "healthy",
        damages.keep_an_older_log,
    ),
)


def judge_all(runs: RealRuns, folder: Path) -> dict[str, Verdict]:
    """Return the verdict on each case by its name; `folder` is made, and keeps what was damaged."""
    verdicts = {}
    for number, case in enumerate(CASES):
        place = folder / str(number)
        place.mkdir(parents=True)
        verdicts[case.name] = case.judge(runs, place)
    return verdicts

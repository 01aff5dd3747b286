"""The early end of a run: an evaluation met the condition `stop_when` before the last step."""

from dataclasses import dataclass

from psfleet.evidence.answer import Findings
from psfleet.evidence.convergence import metrics_of
from psfleet.evidence.recorded_run import Run
from trainer.contract.records import MET
from trainer.contract.stop_condition import StopCondition, condition_in


@dataclass(frozen=True)
class EarlyEnd:
    """The condition `stop_when` that ended a run, and the evaluation that met it.

    `global_step` is the step of the evaluation, and `value` is its value of the condition's metric.
    """

    condition: StopCondition
    global_step: int
    value: float

    def __str__(self) -> str:
        """Return the reason of the end in words.

        Example: "auc > 0.77 was met by the evaluation of global step 40: auc was 0.7815".
        """
        value = f"{self.condition.metric} was {self.value:.6g}"
        return f"{self.condition} was met by the evaluation of global step {self.global_step}: {value}"

    def as_dict(self) -> dict[str, object]:
        """Return {field: value} of `condition` (as text), `global_step` and `value`, as in the figures."""
        return {"condition": str(self.condition), "global_step": self.global_step, "value": self.value}


def early_end_of(run: Run) -> EarlyEnd | None:
    """Return the condition `stop_when` and the first evaluation that met it, if it ended the run early.

    Return None if the chief did not record such an end, if the settings have no `stop_when`, or if no
    evaluation of a saved checkpoint met it.
    """
    condition, last_step = condition_in(run.training), run.last_step
    if condition is None or last_step is None or not has_ended_early(run):
        return None
    # The values that were saved at each step, as the chief recorded them.
    saved = {
        (record.integer("global_step"), record.text("fingerprint")) for record in run.chief.of("checkpointed")
    }
    evaluations = [
        record
        for record in run.evaluator.of("evaluated")
        if record.integer("global_step") <= last_step
        and (record.integer("global_step"), record.text("fingerprint")) in saved
        and condition.is_met(metrics_of(record))
    ]
    if not evaluations:
        return None
    first = evaluations[0]
    return EarlyEnd(condition, first.integer("global_step"), metrics_of(first)[condition.metric])


def has_ended_early(run: Run) -> bool:
    """Return whether the chief's `finished` says that an evaluation met `stop_when`; False if it has none."""
    return run.final is not None and run.final.text("reason") == MET


def check_early_end(run: Run, findings: Findings) -> None:
    """Check that the run's settings and the evaluator's records explain an early end of the run.

    Add a finding for each worker that ended by `stop_when` if the settings do not have it; else one finding
    if the run ended early, and no evaluation of a saved checkpoint met the condition.
    """
    condition = condition_in(run.training)
    if condition is None:
        findings.wrong += [
            f"{worker.name} ended because an evaluation met stop_when, which the run's settings do not have"
            for worker in run.workers
            if worker.ending is not None and worker.ending.text("reason") == MET
        ]
    elif has_ended_early(run) and early_end_of(run) is None:
        # Evaluations may be missing from a damaged file; a file without unreadable parts has them all.
        during = [life for life in run.evaluator.processes if life is not run.evaluation and life.evaluated]
        ended = f"the run ended early at global step {run.last_step}"
        findings.add(
            f"{ended}, and no evaluation of a checkpoint before met {condition}",
            certain=bool(during) and not run.evaluator.unreadable,
        )

"""The final model: whether all clients read the same one, and what a process found in it that took no part.

After the last step nothing moves any more. Each client then reads a fingerprint of all parameters from the
ps, and a process that was no task of the run reads them from the last checkpoint and evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer.evidence.check import Check, Findings, counted, listed
from trainer.evidence.convergence import metrics_of
from trainer.evidence.run import Process, Run
from trainer.records import Record

# Two machines, or one with other threads, add the same numbers in another order, and a GPU multiplies with
# fewer bits: the metrics of the same parameters agree to about a thousandth, or by one example of the test.
_TOLERANCE = 1e-3
_ONE_EXAMPLE = 1.01  # and what rounding adds to it


def fingerprints_agree(run: Run) -> Check:
    """Every client read the same parameters in the end, and the last checkpoint holds these.

    Fingerprints of different global steps are of different models, so only those of one step are compared.
    """
    findings = Findings()
    read: dict[str, tuple[str, int]] = {}
    for client in run.clients:
        found = _fingerprint(client.ending, "fingerprint_step")
        if found is None:
            findings.lacking.append(f"{client.name} does not tell which parameters it read in the end")
        else:
            read[client.name] = found
    evaluated = run.evaluation.evaluated if run.evaluation else None
    kept = _fingerprint(evaluated, "global_step")
    if kept is None:
        findings.lacking.append("nobody who took no part tells which parameters the last checkpoint holds")
    else:
        read[run.evaluator.name] = kept
    _compare_fingerprints(read, findings)
    digest, step = next(iter(read.values()), ("", 0))
    return findings.conclude(
        "fingerprints_agree",
        f"{counted(len(run.clients), 'client')} and the last checkpoint hold {digest} at global step {step}",
        {"fingerprints": {name: {"fingerprint": one, "global_step": at} for name, (one, at) in read.items()}},
    )


def evaluated_apart(run: Run) -> Check:
    """A process that took no part evaluated the last checkpoint, and found what the chief had found."""
    findings = Findings()
    name = run.evaluator.name
    life = run.evaluation
    if life is None:
        findings.lacking.append("no process that took no part has evaluated the final model")
        return findings.conclude("evaluated_apart", "")
    findings.wrong += [f"{name}: its file has {what}" for what in run.evaluator.foreign]
    findings.lacking += [f"cannot read {what}" for what in run.evaluator.unreadable]
    _compare_identity(run, life, findings)
    evaluated = life.evaluated
    if evaluated is None:
        why = life.ending.text("reason") if life.ending is not None else "its records end before"
        findings.lacking.append(f"{name} has not evaluated the final model: {why}")
        return findings.conclude("evaluated_apart", "")
    step = evaluated.integer("global_step")
    _compare_checkpoint(run, step, findings)
    found = metrics_of(evaluated)
    _compare_metrics(run, step, found, _examples(evaluated), findings)
    return findings.conclude(
        "evaluated_apart",
        f"{name} found at global step {step} what the chief found: "
        + listed(f"{metric} {value:.4g}" for metric, value in found.items()),
        {
            "global_step": step,
            "nonce": life.nonce,
            "metrics": {metric: value if math.isfinite(value) else None for metric, value in found.items()},
        },
    )


def _fingerprint(record: Record | None, step: str) -> tuple[str, int] | None:
    """Return the fingerprint that a record tells and the global step that it is of."""
    if record is None or not record.text("fingerprint"):
        return None
    at = record.fields.get(step)
    return (record.text("fingerprint"), at) if type(at) is int else None


def _compare_fingerprints(read: Mapping[str, tuple[str, int]], findings: Findings) -> None:
    steps = {step for _, step in read.values()}
    for step in sorted(steps):
        digests = {name: digest for name, (digest, at) in read.items() if at == step}
        if len(set(digests.values())) > 1:
            told = listed(f"{name} read {digest}" for name, digest in digests.items())
            findings.wrong.append(f"the parameters differ at global step {step}: {told}")
    if len(steps) > 1:
        told = listed(f"{name} at global step {at}" for name, (_, at) in read.items())
        findings.lacking.append(f"they were read at different steps and cannot be compared: {told}")


def _compare_identity(run: Run, life: Process, findings: Findings) -> None:
    """It must be a process of its own, which no task of the run drew a nonce for.

    Names of hosts and process ids are not asked: hosts may have one name, and ids are used again.
    """
    if life.nonce is None:
        findings.lacking.append(f"{run.evaluator.name}: its records do not begin with `started`")
    for task in run.tasks.values():
        for process in task.processes:
            if life.nonce is not None and process.nonce == life.nonce:
                findings.wrong.append(f"who evaluated has the nonce of {task.name}: it took part in the run")


def _compare_checkpoint(run: Run, step: int, findings: Findings) -> None:
    """It must be the last checkpoint, and that the final model."""
    saved = [record.integer("global_step") for record in run.chief.of("checkpointed")]
    if saved and step != saved[-1]:
        findings.add(
            f"it evaluated the checkpoint of global step {step}, the chief saved that of {saved[-1]} last",
            certain=run.chief.whole,
        )
    elif not saved:
        findings.lacking.append("the chief does not tell of a checkpoint")
    if run.final is not None and step < run.global_steps:
        findings.lacking.append(
            f"the checkpoint is of global step {step}, the run ended at {run.global_steps}"
        )


def _compare_metrics(
    run: Run, step: int, found: Mapping[str, float], examples: int, findings: Findings
) -> None:
    of_chief = [record for record in run.chief.of("evaluated") if record.integer("global_step") == step]
    if not of_chief:
        findings.lacking.append(f"the chief did not evaluate global step {step}: nothing to compare with")
        return
    for metric, value in metrics_of(of_chief[-1]).items():
        if metric not in found:
            findings.lacking.append(f"{metric} was not evaluated apart")
        elif not _alike(value, found[metric], examples):
            findings.wrong.append(
                f"{metric} at global step {step} is {found[metric]:.6g} apart, the chief found {value:.6g}"
            )


def _alike(one: float, other: float, examples: int) -> bool:
    if math.isnan(one) and math.isnan(other):
        return True
    return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_ONE_EXAMPLE / examples if examples else 0.0)


def _examples(evaluated: Record) -> int:
    examples = evaluated.fields.get("examples")
    return examples if type(examples) is int and examples > 0 else 0

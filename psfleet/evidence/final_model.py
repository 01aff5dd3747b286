"""The final model: whether all clients read the same parameters, and whether the evaluator found the same.

After the last step the parameters no longer change. Each client then reads a fingerprint of all parameters
from the ps, and computes the model's outputs for some test examples. The evaluator is no task of the run. It
reads the parameters from the last checkpoint, evaluates them, and computes the same outputs.
"""

import math
from collections.abc import Mapping

from psfleet.evidence.answer import Findings, Good, counted, listed
from psfleet.evidence.card import DEPLOY, Card, Group, check
from psfleet.evidence.convergence import metrics_of
from psfleet.evidence.older_releases import OUTPUTS, could_record
from psfleet.evidence.ps_restores import check_ps_restores
from psfleet.evidence.reasons import in_a_line
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import Process
from trainer.contract.records import Record

# Two machines, or different numbers of threads, add the same numbers in different orders, and GPUs multiply
# with lower precision. So metrics of the same parameters agree to about a thousandth, or within one test
# example.
_TOLERANCE = 1e-3
_ONE_EXAMPLE = 1.01  # with a margin for rounding
# The model's outputs for a single example differ more: by this share of the largest number of an output.
_OF_THE_LARGEST = 0.01


@check(
    Card(
        Group.SHARING,
        holds=(
            "after the last step all clients read the same parameters, bit for bit, and the last checkpoint "
            "holds them; each restore and each evaluation found what was saved"
        ),
        fails=(
            "fingerprints of one global step or one checkpoint differ; a ps was started again without a "
            "restore"
        ),
        unknown=(
            "a client or the evaluator did not read a fingerprint; clients read at different steps; the save "
            "did not record the part of a ps that restored alone"
        ),
        advice=(
            "At the end the workers read different models: they do not all use the same parameter "
            f"servers. {DEPLOY}"
        ),
    )
)
def fingerprints_agree(findings: Findings, run: Run) -> Good:
    """Check that every client read the same parameters at the end, and that they were saved last.

    Only fingerprints at the same global step are compared, because each step changes the model. Figures:
    `fingerprints`, {client or evaluator: {`fingerprint`, `global_step`}}.
    """
    read: dict[str, tuple[str, int]] = {}
    for client in run.clients:
        found = _fingerprint(client.ending, "fingerprint_step")
        if found is None:
            findings.lacking.append(f"{client.name} did not record which parameters it read at its end")
        else:
            read[client.name] = found
    kept = _fingerprint(run.evaluation.evaluated if run.evaluation else None, "global_step")
    if kept is None:
        findings.lacking.append(
            "no process outside the training recorded which parameters the last checkpoint holds"
        )
    else:
        read[run.evaluator.name] = kept
    _follow_checkpoints(run, findings)
    check_ps_restores(run, findings)
    steps = sorted({step for _, step in read.values()})
    for step in steps:
        digests = {name: digest for name, (digest, at) in read.items() if at == step}
        if len(set(digests.values())) > 1:
            listing = listed(f"{name} read {digest}" for name, digest in digests.items())
            findings.wrong.append(f"the parameters differ at global step {step}: {listing}")
    if len(steps) > 1:
        listing = listed(f"{name} at global step {at}" for name, (_, at) in read.items())
        findings.lacking.append(f"they were read at different steps and cannot be compared: {listing}")
    digest, step = next(iter(read.values()), ("", 0))
    good = (
        f"{counted(len(run.clients), 'client')} and the last checkpoint hold {digest} at global step {step}"
    )
    read_by = {name: {"fingerprint": one, "global_step": at} for name, (one, at) in read.items()}
    return good, {"fingerprints": read_by}


@check(
    Card(
        Group.EVALUATION,
        holds=(
            "the evaluator took no part, evaluated the last checkpoint, and found the chief's metrics and "
            "each client's outputs for some test examples"
        ),
        fails="the evaluator found something else, took part, or evaluated another checkpoint",
        unknown=(
            "the evaluator did not evaluate, or its records have no end or appear twice; the chief did not "
            "evaluate or save; a client did not record its outputs"
        ),
        advice=(
            "The evaluator must evaluate the last checkpoint on the chief's host: check that the "
            "checkpoint is there, and collect the run again: ansible-playbook train.yml -e run_id=ID. If "
            "a worker found something else than the evaluator, look whether both have the same release "
            "and the same test data."
        ),
    )
)
def evaluated_apart(findings: Findings, run: Run) -> Good:
    """Check that the evaluator read the last checkpoint, and found what the chief and the clients found.

    Figures: the `global_step`, the `nonce` and the `metrics` of the evaluator; {} if it did not evaluate.
    """
    name, life = run.evaluator.name, run.evaluation
    if life is None:
        findings.lacking.append("no process outside the training evaluated the final model")
        return "", {}
    findings.wrong += [f"{name}: its file has {what}" for what in run.evaluator.foreign]
    findings.lacking += [f"cannot read {what}" for what in run.evaluator.unreadable]
    if run.evaluator.repeated:
        findings.lacking.append(f"{name}: {counted(run.evaluator.repeated, 'record')} twice in its file")
    _compare_identity(run, life, findings)
    evaluated = life.evaluated
    if evaluated is None:
        why = in_a_line(life.ending.text("reason")) if life.ending is not None else "its records end before"
        findings.lacking.append(f"{name} has not evaluated the final model: {why}")
        return "", {}
    if life.ending is None:
        findings.lacking.append(f"{name} recorded no end: it was killed, or its records are cut")
    step, found = evaluated.integer("global_step"), metrics_of(evaluated)
    _compare_checkpoint(run, step, findings)
    _compare_metrics(run, evaluated, findings)
    _compare_samples(run, evaluated, findings)
    listing = listed(f"{metric} {value:.4g}" for metric, value in found.items())
    return f"{name} found at global step {step} what the chief found: {listing}", {
        "global_step": step,
        "nonce": life.nonce,
        "metrics": found,
    }


def _follow_checkpoints(run: Run, findings: Findings) -> None:
    """Check that restored and evaluated parameters are the parameters that were saved at that global step.

    Add a contradiction for each fingerprint that differs from all that the chief saved at its step.
    Fingerprints of steps without a saved one are not compared.
    """
    saved: dict[int, set[str]] = {}
    read: list[tuple[str, tuple[str, int] | None]] = []
    for record in run.chief.of("checkpointed", "restored"):
        found = _fingerprint(record, "global_step")
        if record.event == "restored":
            read.append((f"{run.chief.name} restored", found))
        elif found:
            saved.setdefault(found[1], set()).add(found[0])
    evaluated = run.evaluation.evaluated if run.evaluation else None
    read.append((f"{run.evaluator.name} read", _fingerprint(evaluated, "global_step")))
    for who, found in read:
        if found and found[1] in saved and found[0] not in saved[found[1]]:
            expected = " or ".join(sorted(saved[found[1]]))
            findings.wrong.append(
                f"{who} {found[0]} at global step {found[1]}, where {expected} had been saved"
            )


def _fingerprint(record: Record | None, step: str) -> tuple[str, int] | None:
    if record is None or not record.text("fingerprint"):
        return None
    at = record.fields.get(step)
    return (record.text("fingerprint"), at) if type(at) is int else None


def _compare_identity(run: Run, life: Process, findings: Findings) -> None:
    """Check that the evaluator was a process of its own: no task of the run drew its nonce.

    Missing evidence if its records lack `started`. Host names and process ids are not compared: hosts may
    share a name, and ids are reused.
    """
    if life.nonce is None:
        findings.lacking.append(f"{run.evaluator.name}: its records do not begin with `started`")
        return
    findings.wrong += [
        f"the evaluator has the nonce of {task.name}: it took part in the run"
        for task in run.tasks.values()
        for process in task.processes
        if process.nonce == life.nonce
    ]


def _compare_checkpoint(run: Run, step: int, findings: Findings) -> None:
    """Check that `step`, which the evaluator read, is the last checkpoint and the end of the run.

    Another step than the last checkpoint is a contradiction if the chief's records are complete, else missing
    evidence. A checkpoint before the run's end is missing evidence, also the last one.
    """
    saved = [record.integer("global_step") for record in run.chief.of("checkpointed")]
    if not saved:
        findings.lacking.append("the chief recorded no checkpoint")
    elif step != saved[-1]:
        difference = (
            f"it evaluated the checkpoint of global step {step}, the chief saved that of {saved[-1]} last"
        )
        findings.add(difference, certain=run.chief.whole)
    if run.final is not None and step < run.global_steps:
        difference = f"the checkpoint is of global step {step}, the run ended at {run.global_steps}"
        findings.lacking.append(difference)


def _compare_metrics(run: Run, evaluated: Record, findings: Findings) -> None:
    step, found = evaluated.integer("global_step"), metrics_of(evaluated)
    of_chief = [record for record in run.chief.of("evaluated") if record.integer("global_step") == step]
    if not of_chief:
        findings.lacking.append(f"the chief did not evaluate global step {step}: nothing to compare with")
        return
    examples = evaluated.fields.get("examples")
    one_example = _ONE_EXAMPLE / examples if type(examples) is int and examples > 0 else 0.0
    by_chief = metrics_of(of_chief[-1])
    findings.lacking += [
        f"the chief did not record its {metric}" for metric in found if metric not in by_chief
    ]
    for metric, value in by_chief.items():
        if metric not in found:
            findings.lacking.append(f"{metric} was not evaluated outside the training")
        elif math.isnan(value) and math.isnan(found[metric]):
            continue
        elif not math.isclose(value, found[metric], rel_tol=_TOLERANCE, abs_tol=one_example):
            findings.wrong.append(
                f"{metric} at global step {step} is {found[metric]:.6g} apart, the chief found {value:.6g}"
            )


def _compare_samples(run: Run, evaluated: Record, findings: Findings) -> None:
    """Compare the clients' outputs for some test examples with the evaluator's outputs.

    Outputs that differ are a contradiction; different or no outputs recorded are missing evidence. Only
    clients that read the parameters at the evaluated global step are compared. Other checks miss a client
    that looks up wrong rows of a table: it has trained these rows, too, so only its outputs differ.
    """
    if not could_record(run, OUTPUTS):
        return
    apart = metrics_of(evaluated, "sample_outputs")
    for client in run.clients:
        read = _fingerprint(client.ending, "fingerprint_step")
        if read is None or read[1] != evaluated.integer("global_step"):
            continue
        outputs = metrics_of(client.ending, "sample_outputs")
        if not apart or outputs.keys() != apart.keys():
            what = "did not record the same outputs for test examples"
            findings.lacking.append(f"{client.name} and {run.evaluator.name} {what}")
            continue
        differing = _differing(outputs, apart)
        if differing:
            first, count = differing[0], f"{len(differing)} of {len(outputs)}"
            what = f"for {first} of the first test examples {client.name} found {outputs[first]:.6g}"
            findings.wrong.append(f"{what}, and it is {apart[first]:.6g} apart; {count} numbers differ")


def _differing(outputs: Mapping[str, float], of_evaluator: Mapping[str, float]) -> list[str]:
    """Return the places, such as "logits[3]", at which a client's `outputs` differ from the evaluator's.

    Both arguments are {place: number} with the same places. Numbers differ if their distance is more than 1 %
    of the largest number of this output; two nans are equal.
    """
    largest: dict[str, float] = {}
    for place, value in of_evaluator.items():
        output = place.partition("[")[0]
        largest[output] = max(largest.get(output, 0.0), abs(value) if math.isfinite(value) else 0.0)
    return [
        place
        for place, value in outputs.items()
        if not (math.isnan(value) and math.isnan(of_evaluator[place]))
        and not abs(value - of_evaluator[place]) <= _OF_THE_LARGEST * largest[place.partition("[")[0]]
    ]

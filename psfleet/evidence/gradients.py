"""Checks that each worker pushed the gradients of its loss; no other check finds zeros and noise."""

import math
from statistics import median, median_low

from psfleet.evidence.answer import Findings, Good, listed
from psfleet.evidence.card import Card, Group, check
from psfleet.evidence.older_releases import GRADIENTS, could_record, release_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords

# The fit is the change of the loss along the gradients, divided by the change that they predict. It is
# about 1 for gradients of the loss, apart from curvature and rounding, and about 0 for zeros and noise.
_LEAST, _MOST = 0.5, 1.5
_MAY_MISS = 0.1  # this share of the measurements may be out of range, at least one: a loss has kinks
# As a share of the loss at the start: below it, there is nothing left to learn.
_NOTHING_LEFT = 1e-9

_Measurement = tuple[float, float, float]  # loss, norm, fit


@check(
    Card(
        Group.GRADIENTS,
        holds="each worker's loss changes along its gradients as much as the gradients predict",
        fails="a worker's loss changes otherwise, or all its gradients were 0",
        unknown="a worker did not record tests of its gradients",
        advice=(
            "A worker pushed zeros, noise or gradients of something else. Look for a stop_gradient or a "
            "custom gradient in the model's loss, and check that worker's host, GPUs and release."
        ),
    )
)
def gradients_fit_loss(findings: Findings, run: Run) -> Good:
    """Check that each worker's loss changes along its gradients as they predict.

    trainer/engine/gradient_check.py measures it. Figures: `fits` and `norms`, {worker: its measurements}.
    """
    measured = {worker.name: _measurements_of(worker, run) for worker in run.recorded_workers}
    # One loss that is not finite must not keep the others from being judged.
    finite = ([abs(loss) for loss, *_ in found if math.isfinite(loss)] for found in measured.values())
    began = [sizes[0] for sizes in finite if sizes]
    least = _NOTHING_LEFT * (median_low(began) if began else 0.0)
    fit_of: dict[str, str] = {}
    for name, found in measured.items():
        if not found and could_record(run, GRADIENTS):
            findings.lacking.append(f"{name} did not record whether its gradients fit its loss")
        if not found:
            continue
        fits = [fit for loss, _, fit in found if math.isfinite(fit) and abs(loss) > least]
        beside = [fit for fit in fits if not _LEAST <= fit <= _MOST]
        # The fit is unknown for a loss that draws random numbers, and if all gradients are rows of tables.
        fit_of[name] = f"{median(fits):.3g}" if fits else "not known"
        norms = [norm for loss, norm, _ in found if not abs(loss) <= least]
        if norms and not any(norms):
            findings.wrong.append(f"{name}: all gradients that it pushed were 0")
        elif len(beside) > max(_MAY_MISS * len(fits), 1):
            times = f"in {len(beside)} of {len(fits)} measurements"
            what = f"what {name} pushed are not the gradients of its loss: along them the loss changes"
            expected = (
                f"by {median(beside):.2g} of what they predict {times}, expected {_LEAST:g} to {_MOST:g}"
            )
            findings.wrong.append(f"{what} {expected}")
    # In a part of the run that an older release recorded, nobody measured.
    good = listed(f"{name} {fit}" for name, fit in fit_of.items()) or f"unknown to release {release_of(run)}"
    return f"the loss changes along the gradients by this part of what they predict: {good}", {
        "fits": {name: [round(fit, 4) for *_, fit in found] for name, found in measured.items()},
        "norms": {name: [norm for _, norm, _ in found] for name, found in measured.items()},
    }


def _measurements_of(worker: TaskRecords, run: Run) -> list[_Measurement]:
    """Return (loss, norm, fit) for each measurement of a worker's gradients, in order; [] for none.

    A value that was not finite is nan. In-graph, the client records the measurements of all workers.
    """
    by = run.chief if run.rules.one_client else worker
    found = []
    for record in by.of("gradients"):
        values = [record.fields.get(name) for name in ("losses", "norms", "fits")]
        own = [of.get(worker.name) for of in values if isinstance(of, dict) and worker.name in of]
        if len(own) == len(values):
            loss, norm, fit = (math.nan if value is None else float(value) for value in own)
            found.append((loss, norm, fit))
    return found

"""How many examples a run needed compared to one process: the cost of distribution.

references/<model>.json has the losses of runs of one process with different seeds, for several numbers of
examples per global step, and of asynchronous workers (`make references` creates them). As with MLPerf's
reference convergence points (mlcommons/logging, rcp_checker), a run is compared with those of its own batch
by a t-test: here one-sided at 1 %, on the logarithm of the examples, for one run against `SEEDS` others.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

from psfleet.evidence.convergence import MOST_LOSS
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from trainer.contract.settings import TrainingSettings

FOLDER = Path(__file__).with_name("references")
SEEDS = 10
# The quantile 0.99 of Student's t distribution for SEEDS - 1 degrees of freedom.
STUDENT = 2.8214
# A run must share these settings with the references, because the comparison is about everything else.
DEFINING = ("learning_rate", "optimizer", "hidden_units", "activation", "data_dir")
# Losses are averaged over the examples between successive powers of this number.
_BIN = 1.15
_WIDEST = 0.3  # share of the examples before it; a longer window is too vague about where the loss fell
_HALVINGS = 8  # of the target loss; the lowest level that was reached is compared

Curve = Sequence[tuple[float, float]]  # (examples, mean loss), by examples


@dataclass(frozen=True)
class LearningPace:
    """The `examples` until the mean loss was `loss`, for a run and for `one_process` (mean of the seeds).

    Runs of one process need at most `most` examples in 99 of 100 cases. `usual` is what this replication with
    this number of workers needed where the references were made, None if the references lack it.
    """

    loss: float
    examples: int
    one_process: int
    most: int
    usual: int | None


def pace_of(run: Run) -> LearningPace | None:
    """Return how fast a run learned; None if no reference matches it, or if its windows are too long."""
    examples_of_a_step, alone = of_one_process(run)
    if not alone:
        return None
    curve = curve_of(run, examples_of_a_step)
    # The references have runs that push each batch, with plain steps.
    kind = (run.rules.replication, run.rules.workers, examples_of_a_step)
    alike = () if run.training.get("staleness") == "damped" else _references(run.model).get(kind, ())
    for loss in _levels(run.model):
        own, needed = examples_until(loss, curve), _until(loss, alone)
        if own is not None and len(needed) == SEEDS:
            middle = fmean(needed)
            most = middle + STUDENT * stdev(needed) * math.sqrt(1 + 1 / SEEDS)
            usual = _until(loss, alike)
            usual_examples = round(math.exp(fmean(usual))) if len(usual) == SEEDS else None
            return LearningPace(
                loss, round(own), round(math.exp(middle)), round(math.exp(most)), usual_examples
            )
    return None


def of_one_process(run: Run) -> tuple[int, Sequence[Curve]]:
    """Return a run's examples per global step, and the reference curves of one process.

    If a step has several batches (`push_every`), the process takes a step for each. Return 0 and () if the
    workers have different batches, or settings that the references lack.
    """
    recorded = [settings for worker in run.workers for settings in worker.settings]
    usual = TrainingSettings().as_dict()
    sizes = {(_whole(one, "batch_size"), _whole({"push_every": 1, **one}, "push_every")) for one in recorded}
    if len(sizes) != 1 or any(one.get(name) != usual[name] for one in recorded for name in DEFINING):
        return 0, ()
    size, batches = sizes.pop()
    batch = run.rules.gradients_per_step * size
    return batch * batches, _references(run.model).get(("local", 1, batch), ())


def _whole(settings: Mapping[str, object], name: str) -> int:
    """Return a setting that is a whole number; 0 if it is none."""
    value = settings.get(name)
    return value if type(value) is int else 0


def _until(loss: float, curves: Sequence[Curve]) -> list[float]:
    """Return the logarithm of the examples until the loss, for each curve that reached it."""
    return [math.log(until) for curve in curves if (until := examples_until(loss, curve)) is not None]


def curve_of(run: Run, batch: int) -> Curve:
    """Return the mean loss of all workers by examples, with `batch` examples per global step."""
    bins = defaultdict[int, list[tuple[float, float, int]]](list)
    for window in run.windows:
        examples, width = (window.before + window.after) / 2 * batch, (window.after - window.before) * batch
        loss = window.loss_mean
        usable = loss is not None and abs(loss) <= MOST_LOSS and window.steps > 0
        if loss is not None and usable and 0 < width <= _WIDEST * examples:
            bins[math.floor(math.log(examples, _BIN))].append((math.log(examples), loss, window.steps))
    curve = []
    for _, inside in sorted(bins.items()):
        steps = [count for *_, count in inside]
        middle = fmean([examples for examples, *_ in inside], steps)
        curve.append((math.exp(middle), fmean([loss for _, loss, _ in inside], steps)))
    return curve


def examples_until(loss: float, curve: Curve) -> float | None:
    """Return the examples at which a curve first reached `loss`, None if it never did or began there."""
    for (before, above), (after, below) in pairwise(curve):
        if above > loss >= below:
            return math.exp(math.log(before) + math.log(after / before) * (above - loss) / (above - below))
    return None


def _levels(model: str) -> Iterator[float]:
    """Yield the losses to compare at, the lowest first."""
    target = EvidenceSettings().target_loss_of(model, {}) or 0.0
    yield from (target / 2**halvings for halvings in reversed(range(_HALVINGS)))


@cache
def _references(model: str) -> Mapping[tuple[str, int, int], Sequence[Curve]]:
    """Return (replication, workers, examples per global step) -> curves; {} for an unknown model."""
    found = defaultdict[tuple[str, int, int], list[Curve]](list)
    path = {file.stem: file for file in FOLDER.glob("*.json")}.get(model)
    for one in json.loads(path.read_text(encoding="utf-8"))["runs"] if path else ():
        found[one["replication"], one["workers"], one["batch"]].append(one["curve"])
    return found

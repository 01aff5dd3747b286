"""Checks that the workers trained one model together, ordered by global steps, never by clocks."""

from __future__ import annotations

from itertools import combinations

from trainer.evidence.check import Check, Findings, counted, listed
from trainer.evidence.run import Run, TaskRecords
from trainer.evidence.settings import EvidenceSettings

_ALONE = "there is one worker, so nobody to share with"


def same_parameter_servers(run: Run) -> Check:
    """Every worker read, on each ps of the plan, a nonce that the chief read there too."""
    findings = Findings(lacking=run.plan_lacking)
    of_chief = _nonces(run.chief, "ps_nonces")
    read = {worker.name: _nonces(worker, "ps_nonces") for worker in run.workers}
    for worker in run.workers:
        seen = read[worker.name]
        if not seen:
            findings.lacking.append(f"{worker.name} does not tell which ps it met")
            continue
        for ps in run.ps:
            if ps.name not in seen:
                findings.wrong.append(f"{worker.name} never met {ps.name}")
            elif of_chief and not seen[ps.name] <= of_chief.get(ps.name, set()):
                findings.add(f"{worker.name} met another {ps.name} than the chief", certain=run.chief.whole)
    if run.workers and not of_chief:
        findings.lacking.append("with no word from the chief, the others cannot be compared")
    return findings.conclude(
        "same_parameter_servers",
        f"{counted(len(run.workers), 'worker')} met the same {', '.join(ps.name for ps in run.ps)}",
        {name: {ps: sorted(nonces) for ps, nonces in seen.items()} for name, seen in read.items()},
    )


def workers_met(run: Run) -> Check:
    """Of each two workers one read on the ps what the other, and nobody else, had written there."""
    findings = Findings(lacking=run.plan_lacking)
    own = {worker.name: _own_nonces(worker) for worker in run.workers}
    seen = {worker.name: _nonces(worker, "worker_nonces") for worker in run.workers}
    whole = {worker.name for worker in run.workers if worker.whole}
    for reader, found in seen.items():
        for writer, nonces in found.items():
            if nonces - own.get(writer, set()):
                strange = f"{reader} met a {writer} that is not the one of these records"
                findings.add(strange, certain=writer in whole)
    pairs = list(combinations(own, 2))
    for one, other in pairs:
        if not (seen[one].get(other, set()) & own[other] or seen[other].get(one, set()) & own[one]):
            findings.add(f"{one} and {other} did not meet on the ps", certain={one, other} <= whole)
    return findings.conclude(
        "workers_met",
        f"{counted(len(own), 'worker')} found each other's nonces on the ps" if pairs else _ALONE,
        {"nonces": {name: sorted(nonces) for name, nonces in own.items()}},
    )


def fair_shares(run: Run, settings: EvidenceSettings) -> Check:
    """No worker did almost nothing: each has `minimum_share` of an equal share of the global steps."""
    findings = Findings(lacking=run.plan_lacking)
    told = bool(run.contributions)
    if not told and run.plan is not None:
        findings.lacking.append("the chief does not tell what each worker contributed")
    shares = {}
    least = settings.minimum_share / max(len(run.workers), 1)
    for worker in run.workers:
        steps = run.contributions.get(worker.name, 0) if told else worker.local_steps
        shares[worker.name] = steps / run.global_steps if run.global_steps else 0.0
        if shares[worker.name] < least:
            findings.add(
                f"{worker.name} applied {steps} of {run.global_steps} global steps "
                f"({shares[worker.name]:.1%}), expected at least {least:.1%}",
                certain=told or worker.whole,
            )
    return findings.conclude(
        "fair_shares",
        listed(f"{name} {share:.1%}" for name, share in shares.items()),
        {"shares": {name: round(share, 4) for name, share in shares.items()}, "expected_at_least": least},
    )


def workers_overlap(run: Run, settings: EvidenceSettings) -> Check:
    """All workers were training during at least `minimum_overlap` of the run's global steps."""
    findings = Findings(lacking=run.plan_lacking)
    spans: dict[str, tuple[int, int]] = {}
    for worker in run.workers:
        if worker.windows:
            spans[worker.name] = (
                min(window.before for window in worker.windows),
                max(window.after for window in worker.windows),
            )
        else:
            findings.add(f"{worker.name} recorded no step", certain=worker.whole)
    start, end = (
        max((first for first, _ in spans.values()), default=0),
        min((last for _, last in spans.values()), default=0),
    )
    overlap = max(end - start, 0) / run.global_steps if run.global_steps else 0.0
    if spans and overlap < settings.minimum_overlap:
        findings.add(
            f"all workers were training during {overlap:.0%} of the global steps, "
            f"expected at least {settings.minimum_overlap:.0%}: "
            + listed(f"{name} from {first} to {last}" for name, (first, last) in spans.items()),
            certain=all(worker.whole for worker in run.workers),
        )
    good = f"all workers were training from global step {start} to {end} of {run.global_steps}"
    return findings.conclude(
        "workers_overlap",
        good if len(run.workers) > 1 else _ALONE,
        {"spans": {name: list(span) for name, span in spans.items()}, "overlap": round(overlap, 4)},
    )


def steps_interleave(run: Run) -> Check:
    """While each worker trained, the global step moved by more than its own steps: others moved it, too."""
    findings = Findings(lacking=run.plan_lacking)
    foreign: dict[str, int] = {}
    for worker in run.workers if len(run.workers) > 1 else ():
        if not worker.windows:
            findings.add(f"{worker.name} recorded no step", certain=worker.whole)
            continue
        foreign[worker.name] = _steps_of_others(worker)
        if foreign[worker.name] < 1:
            alone = f"{worker.name} moved the global step alone: no step of another in between"
            findings.add(alone, certain=worker.whole)
    good = "steps of others between a worker's own: " + listed(
        f"{name} saw {steps}" for name, steps in foreign.items()
    )
    return findings.conclude(
        "steps_interleave", good if len(run.workers) > 1 else _ALONE, {"steps_of_others": foreign}
    )


def _own_nonces(worker: TaskRecords) -> set[int]:
    return {process.nonce for process in worker.processes if process.nonce is not None}


def _nonces(worker: TaskRecords, field: str) -> dict[str, set[int]]:
    """Return task -> every nonce of it that this worker read on the ps, in all its lives."""
    nonces: dict[str, set[int]] = {}
    for record in worker.of("peers_ready"):
        for name, nonce in record.integers(field).items():
            nonces.setdefault(name, set()).add(nonce)
    return nonces


def _steps_of_others(worker: TaskRecords) -> int:
    stretches = [stretch for process in worker.processes for stretch in process.stretches]
    return sum(
        stretch[-1].after - stretch[0].before - sum(window.steps for window in stretch)
        for stretch in stretches
    )

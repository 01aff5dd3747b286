"""Checks that the workers trained one model together, ordered by global steps, never by clocks."""

from __future__ import annotations

from itertools import combinations

from trainer.evidence.check import Check, Findings, counted, listed
from trainer.evidence.run import Run, TaskRecords, Window
from trainer.evidence.settings import EvidenceSettings
from trainer.run_tasks import SERVER

# Of the global steps of a program of one's own. What is missing may be a step or so that a task had made and
# not recorded when it was killed.
_MINIMUM_RECORDED = 0.9
_PS_NAMED = 8


def same_parameter_servers(run: Run) -> Check:
    """Every worker that has a session read, on each ps of the run, a nonce that the chief read there too."""
    findings = Findings()
    of_chief = _nonces(run.chief, "ps_nonces")
    read = {worker.name: _nonces(worker, "ps_nonces") for worker in run.clients}
    for worker in run.clients:
        seen = read[worker.name]
        findings.wrong += [
            f"{worker.name} met {name}, which is no ps of the run"
            for name in sorted(set(seen) - {ps.name for ps in run.ps})
        ]
        if not worker.of("peers_ready"):
            findings.lacking.append(f"{worker.name} does not tell which ps it met")
            continue
        for ps in run.ps:
            if ps.name not in seen:
                findings.wrong.append(f"{worker.name} never met {ps.name}")
            elif of_chief and not seen[ps.name] <= of_chief.get(ps.name, set()):
                findings.add(f"{worker.name} met another {ps.name} than the chief", certain=run.chief.whole)
    if run.ps and run.clients and not of_chief:
        findings.lacking.append("with no word from the chief, the others cannot be compared")
    met = (
        f"the client of all {counted(len(run.workers), 'worker')}"
        if run.profile.one_client
        else counted(len(run.clients), "worker")
    )
    return findings.conclude(
        "same_parameter_servers",
        f"{met} met the same {_ps_in_words(run)}" if run.ps else run.profile.alone,
        {name: {ps: sorted(nonces) for ps, nonces in seen.items()} for name, seen in read.items()},
    )


def _ps_in_words(run: Run) -> str:
    if len(run.ps) > _PS_NAMED:
        return counted(len(run.ps), "ps")
    return ", ".join(ps.name for ps in run.ps)


def workers_met(run: Run) -> Check:
    """Of each two workers one read what the other, and nobody else, had written; one client read of all."""
    findings = Findings()
    own = {worker.name: _own_nonces(worker) for worker in run.workers}
    seen = {worker.name: _nonces(worker, "worker_nonces") for worker in run.workers}
    whole = {worker.name for worker in run.workers if worker.whole}
    for reader, found in seen.items():
        for writer, nonces in found.items():
            if nonces - own.get(writer, set()):
                strange = f"{reader} met a {writer} that is not the one of these records"
                findings.add(strange, certain=writer in whole)
    names = list(own)
    pairs = (
        [(names[0], other) for other in names[1:]] if run.profile.one_client else list(combinations(own, 2))
    )
    for one, other in pairs:
        if not (seen[one].get(other, set()) & own[other] or seen[other].get(one, set()) & own[one]):
            findings.add(f"{one} and {other} did not meet", certain={one, other} <= whole)
    where = (
        "the client found the nonce of each on its device"
        if run.profile.one_client
        else "found each other's nonces on the ps"
    )
    return findings.conclude(
        "workers_met",
        f"{counted(len(own), 'worker')}{':' if run.profile.one_client else ''} {where}"
        if pairs
        else run.profile.alone,
        {"nonces": {name: sorted(nonces) for name, nonces in own.items()}},
    )


def servers_met(run: Run) -> Check:
    """Each client that connected to a server of its own found on it the nonce that this server had drawn."""
    findings = Findings()
    found: dict[str, list[int]] = {}
    for server in run.servers:
        client = server.name.replace(SERVER, "worker")
        records = run.tasks[client].of("peers_ready") if client in run.tasks else ()
        nonces = {record.integer("server_nonce") for record in records if "server_nonce" in record.fields}
        found[client] = sorted(nonces)
        if not nonces:
            findings.lacking.append(f"{client} does not tell which server it used")
        elif nonces - _own_nonces(server):
            strange = f"{client} used a server that is not {server.name} of these records"
            findings.add(strange, certain=server.whole)
    return findings.conclude(
        "servers_met", f"{listed(found)} used the server of these records", {"server_nonces": found}
    )


def fair_shares(run: Run, settings: EvidenceSettings) -> Check:
    """No worker did almost nothing: each has `minimum_share` of an equal share of all contributions.

    Synchronous training does not wait for its backup workers. As many as these may have contributed less, but
    each must have offered gradients.
    """
    findings = Findings()
    told = bool(run.contributions) and run.program is None
    if not told and run.program is None:
        findings.lacking.append("the chief does not tell what each worker contributed")
    steps = {
        worker.name: run.contributions.get(worker.name, 0) if told else worker.local_steps
        for worker in run.workers
    }
    total = sum(steps.values())
    shares = {name: count / total if total else 0.0 for name, count in steps.items()}
    least = settings.minimum_share / max(len(run.workers), 1)
    below = [name for name, share in shares.items() if share < least]
    backups = run.profile.backups
    if len(below) > backups:
        but = f" of all workers but {backups}" if backups else ""
        for name in below:
            findings.add(
                f"{name} applied {steps[name]} of {total} steps ({shares[name]:.1%}), "
                f"expected at least {least:.1%}{but}",
                certain=told or (run.program is not None and all(worker.whole for worker in run.workers)),
            )
    for worker in run.workers:
        if worker.name in below and not worker.local_steps:
            findings.add(f"{worker.name} computed no gradient", certain=worker.whole)
    return findings.conclude(
        "fair_shares",
        (
            listed(f"{name} {share:.1%}" for name, share in shares.items())
            + (f" ({listed(below)} as backup)" if below else "")
            if run.profile.shared
            else run.profile.alone
        ),
        {"shares": {name: round(share, 4) for name, share in shares.items()}, "expected_at_least": least},
    )


def workers_overlap(run: Run, settings: EvidenceSettings) -> Check:
    """All workers were training during at least `minimum_overlap` of the run's global steps."""
    findings = Findings()
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
        good if run.profile.shared else run.profile.alone,
        {"spans": {name: list(span) for name, span in spans.items()}, "overlap": round(overlap, 4)},
    )


def steps_interleave(run: Run) -> Check:
    """While each worker trained, more gradients went into the global step than its own: others' did, too."""
    findings = Findings()
    foreign: dict[str, int] = {}
    for worker in run.workers if run.profile.shared else ():
        if not worker.windows:
            findings.add(f"{worker.name} recorded no step", certain=worker.whole)
            continue
        foreign[worker.name] = _steps_of_others(run, worker)
        if foreign[worker.name] < 1:
            alone = f"{worker.name} moved the global step alone: no step of another in between"
            findings.add(alone, certain=worker.whole)
    good = "steps of others between a worker's own: " + listed(
        f"{name} saw {steps}" for name, steps in foreign.items()
    )
    return findings.conclude(
        "steps_interleave", good if run.profile.shared else run.profile.alone, {"steps_of_others": foreign}
    )


def steps_unrecorded(run: Run) -> str:
    """Say why the records of a program of one's own are not of every step; empty where they can be.

    A step that nobody recorded looks like a step of another worker: of workers that train alone, and tell
    every tenth step, each would have seen nine steps of others to one of its own.
    """
    windows = [window for worker in run.workers for window in worker.windows]
    moved = run.global_steps - min((window.before for window in windows), default=0)
    told = sum(window.steps for window in windows)
    if told < _MINIMUM_RECORDED * moved:
        return f"its records tell {told} of {moved} steps: not every step was recorded"
    for worker in run.workers:
        paces = [_pace(window) for process in worker.processes for window in process.windows[1:]]
        # Two workers that tell every second step tell as many steps as there are, but each at an even pace.
        if paces and len(set(paces)) == 1 and paces[0] > 1:
            return (
                f"{worker.name} tells exactly one of {paces[0]:g} global steps each time: "
                "others' steps do not come so evenly, a step that is recorded only now and then does"
            )
    return ""


def _pace(window: Window) -> float:
    return (window.after - window.before) / window.steps if window.steps else 0.0


def _own_nonces(worker: TaskRecords) -> set[int]:
    return {process.nonce for process in worker.processes if process.nonce is not None}


def _nonces(worker: TaskRecords, field: str) -> dict[str, set[int]]:
    """Return task -> every nonce of it that this worker read on the ps, in all its lives."""
    nonces: dict[str, set[int]] = {}
    for record in worker.of("peers_ready"):
        for name, nonce in record.integers(field).items():
            nonces.setdefault(name, set()).add(nonce)
    return nonces


def _steps_of_others(run: Run, worker: TaskRecords) -> int:
    stretches = [stretch for process in worker.processes for stretch in process.stretches]
    moved = sum(stretch[-1].after - stretch[0].before for stretch in stretches)
    own = sum(window.steps for stretch in stretches for window in stretch)
    if run.profile.drops_late_gradients:
        own = min(own, run.contributions.get(worker.name, own))
    return moved * run.profile.gradients_per_step - own

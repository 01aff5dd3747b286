"""Checks that the workers trained one model together, ordered by global steps, never by clocks."""

from collections import Counter
from itertools import combinations, pairwise
from statistics import median

from psfleet.evidence.absences import absences, has_left, share_present
from psfleet.evidence.answer import Findings, Good, counted, listed
from psfleet.evidence.card import DEPLOY, Card, Group, check
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.run_tasks import SERVER

# The share of a user's program's global steps that must be recorded. A killed task may leave a step or two
# unrecorded.
_MINIMUM_RECORDED = 0.9
# A worker that was there for a smaller part of a run needs only one step.
_LEAST_PART = 0.1
# If a larger share of a worker's windows has one pace, they are too regular to contain steps of others. Fewer
# windows are too few to tell.
_MOST_OF_ONE_PACE, _FEWEST_OF_A_PACE = 0.9, 3
_PS_NAMED = 8


@check(
    Card(
        Group.SHARING,
        holds="on each ps, every worker read the nonce that the chief read and that the ps itself recorded",
        fails="a worker read another nonce, or never met a ps",
        unknown="a worker did not record which ps it met",
        advice=f"Workers used different parameter servers: each group trained a model of its own. {DEPLOY}",
        programs="if psfleet observed its sessions",
    )
)
def same_parameter_servers(findings: Findings, run: Run) -> Good:
    """Check that every worker with a session read, on each ps, a nonce that the chief read there, too.

    Figures: {worker: {ps: the nonces that it read there, sorted}}.
    """
    of_chief = _nonces(run.chief, "ps_nonces")
    read = {worker.name: _nonces(worker, "ps_nonces") for worker in run.recorded_clients}
    names = [ps.name for ps in run.ps]
    if run.program is not None:
        # A program need not use all of them.
        names = [name for name in names if any(name in seen for seen in read.values())]
    for worker in run.recorded_clients:
        seen = read[worker.name]
        findings.wrong += [
            f"{worker.name} met {name}, which is no ps of the run" for name in sorted(set(seen) - set(names))
        ]
        if not worker.of("peers_ready"):
            findings.lacking.append(f"{worker.name} did not record which ps it met")
            continue
        _compare_ps(run, worker, findings)
        for name in names:
            if name not in seen:
                findings.wrong.append(f"{worker.name} never met {name}")
            elif of_chief and not seen[name] <= of_chief.get(name, set()):
                findings.add(f"{worker.name} met another {name} than the chief", certain=run.chief.whole)
    if run.ps and run.clients and not of_chief:
        findings.lacking.append("the chief did not record which ps it met, so the others cannot be compared")
    clients = counted(len(run.clients), "worker")
    if run.rules.one_client:
        clients = f"the client of all {counted(len(run.workers), 'worker')}"
    servers = counted(len(names), "ps") if len(names) > _PS_NAMED else ", ".join(names)
    without = "the workers use no ps" if run.rules.shared else run.rules.alone
    good = f"{clients} met the same {servers}" if names else without
    return good, {name: {ps: sorted(seen) for ps, seen in of.items()} for name, of in read.items()}


def _compare_ps(run: Run, worker: TaskRecords, findings: Findings) -> None:
    """Check that the nonces which a worker read from each ps are nonces that the ps recorded.

    Nothing is compared for a ps without records, and in old runs, whose workers did not record these nonces.
    """
    for name, drawn in _nonces(worker, "ps_own_nonces").items():
        ps = run.task(name)
        if ps.records and drawn - _own_nonces(ps):
            findings.add(
                f"{worker.name} met a {name} whose nonce is not in the records of {name}", certain=ps.whole
            )


@check(
    Card(
        Group.SHARING,
        holds="in each pair of workers, one read the other's nonce on the ps",
        fails="two workers read no nonce of each other, or a worker read a nonce that no record has",
        unknown="a worker did not record which workers it met",
        advice=f"Workers did not find each other on the parameter servers. {DEPLOY}",
        programs="if psfleet observed its sessions",
    )
)
def workers_met(findings: Findings, run: Run) -> Good:
    """Check that in each pair of workers, one read the other's nonce.

    With one client, check that the client read the nonces of all workers. Two workers that left or joined
    during the run (absences.py) need not have met each other. Figures: `nonces`, {worker: the nonces that it
    drew, sorted}.
    """
    own = {worker.name: _own_nonces(worker) for worker in run.recorded_workers}
    seen = {worker.name: _nonces(worker, "worker_nonces") for worker in run.recorded_workers}
    silent = {task.name for task in run.lost} - own.keys()
    whole = {worker.name for worker in run.workers if worker.whole}
    for reader, found in seen.items():
        for writer, nonces in found.items():
            if writer not in silent and nonces - own.get(writer, set()):
                strange = f"{reader} met a {writer} whose nonce is not in the records of {writer}"
                findings.add(strange, certain=writer in whole)
    pairs = list(combinations(own, 2))
    where = " found each other's nonces on the ps"
    if run.rules.one_client:
        pairs = [(one, other) for one, other in pairs if one == run.workers[0].name]
        where = ": the client found the nonce of each on its device"
    partly = {*absences(run), *(worker.name for worker in run.recorded_lost if has_left(worker))}
    for one, other in pairs:
        if {one, other} <= partly:
            continue
        if not (seen[one].get(other, set()) & own[other] or seen[other].get(one, set()) & own[one]):
            findings.add(f"{one} and {other} did not meet", certain={one, other} <= whole)
    good = f"{counted(len(own), 'worker')}{where}" if pairs else run.rules.alone
    return good, {"nonces": {name: sorted(nonces) for name, nonces in own.items()}}


@check(
    Card(
        Group.SHARING,
        holds="each client found on its server the nonce that this server recorded",
        fails="a client found another nonce",
        unknown="a client did not record the nonce",
        advice=f"A client used another server than its own. {DEPLOY}",
        models="with `existing_servers`",
    )
)
def servers_met(findings: Findings, run: Run) -> Good:
    """Check that each client with a server of its own read from it the nonce that this server had drawn.

    Figures: `server_nonces`, {client: the nonces that it read, sorted}.
    """
    found: dict[str, list[int]] = {}
    for server in run.servers:
        client = server.name.replace(SERVER, "worker")
        met = run.task(client).of("peers_ready")
        nonces = {record.integer("server_nonce") for record in met if "server_nonce" in record.fields}
        found[client] = sorted(nonces)
        if not nonces:
            findings.lacking.append(f"{client} did not record which server it used")
        elif nonces - _own_nonces(server):
            strange = f"{client} used a server that is not {server.name} of these records"
            findings.add(strange, certain=server.whole)
    return f"{listed(found)} used the server of these records", {"server_nonces": found}


@check(
    Card(
        Group.SHARING,
        holds="each worker contributed at least `minimum_share` of an equal share of the gradients",
        fails="a worker contributed less",
        unknown="the counts are missing",
        advice=(
            "A worker did far less than the others. Look at its host's load and network, give it a "
            "smaller trainer_batch_size, or accept it with training_evidence_minimum_share."
        ),
        programs="if all workers recorded steps, or a coordinator counted them",
    )
)
def fair_shares(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that each worker has at least `minimum_share` of an equal share of all contributions.

    Synchronous training does not wait for its backup workers. As many workers as there are backups may have
    contributed less, but each must have computed gradients all the time: a worker that stands still for most
    of the run was not there. A worker that was away for a part of the run (absences.py) owes a share of the
    rest only.
    Figures: `shares`, {worker: 0 to 1}; `expected_at_least`, the least share of a worker that was always
    there.
    """
    if run.program is None and not run.contributions_counted:
        findings.lacking.append("the chief did not record what each worker contributed")
    counts = run.applied
    total = sum(counts.values())
    shares = {name: count / total if total else 0.0 for name, count in counts.items()}
    least = settings.minimum_share / max(len(counts), 1)
    owed = {name: share_present(run, gaps) for name, gaps in absences(run).items()}
    below = [name for name, share in shares.items() if share < least * owed.get(name, 1.0)]
    backups = run.rules.backups
    but = f" of all workers but {backups}" if backups else ""
    for name in below if len(below) > backups else ():
        findings.add(
            f"{name} applied {counts[name]} of {total} steps ({shares[name]:.1%}), "
            f"expected at least {least * owed.get(name, 1.0):.1%}{but}",
            certain=run.contributions_counted or (run.program is not None and run.whole),
        )
    for worker in () if run.coordinated else run.workers:
        if worker.name in below and not worker.local_steps:
            findings.add(f"{worker.name} computed no gradient", certain=worker.whole)
        elif worker.name in below and backups:
            away = _longest_away(worker) / max(run.steps_made, 1)
            if away > 1 - settings.minimum_overlap:
                gone = f"{worker.name}, a backup, made no step during {away:.1%} of the global steps on end"
                findings.add(
                    f"{gone}, expected at most {1 - settings.minimum_overlap:.1%}", certain=worker.whole
                )
    good = listed(f"{name} {share:.1%}" for name, share in shares.items())
    good += f" ({listed(below)} as backup)" if below else ""
    rounded = {name: round(share, 4) for name, share in shares.items()}
    return good if run.rules.shared else run.rules.alone, {"shares": rounded, "expected_at_least": least}


def _longest_away(worker: TaskRecords) -> float:
    """Return the most global steps that were made between two steps of a worker; 0 without windows.

    Within a window, this is an estimate: all global steps of the window, if each step of the worker but one
    takes as many of them as is usual for this worker (the median).
    """
    paces = [(window.after - window.before) / window.steps for window in worker.windows if window.steps]
    usual = median(paces) if paces else 0.0
    within = [w.after - w.before - (w.steps - 1) * usual for w in worker.windows]
    between = [float(later.before - earlier.after) for earlier, later in pairwise(worker.windows)]
    return max([*within, *between], default=0.0)


@check(
    Card(
        Group.SHARING,
        holds="all workers were training during at least `minimum_overlap` of the global steps",
        fails="a worker joined late, or the workers trained one after the other",
        unknown="a worker's steps are missing",
        advice="A worker joined late or left early: see the timeline. Raise trainer_steps for a short run.",
        programs="if all workers recorded steps",
    )
)
def workers_overlap(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that all workers were training during at least `minimum_overlap` of the run's global steps.

    A worker that was away for a part of the run (absences.py) must have trained during that share of the
    rest.
    Figures: `spans`, {worker: [first, last global step]} without workers that were away; `overlap`, 0 to 1.
    """
    recorded, away = [worker for worker in run.workers if has_steps(worker, findings)], absences(run)
    for worker in (worker for worker in recorded if worker.name in away):
        there, trained = share_present(run, away[worker.name]), _steps_during(worker) / max(run.steps_made, 1)
        if there >= _LEAST_PART and trained < settings.minimum_overlap * there:
            findings.add(
                f"{worker.name} was training during {trained / there:.1%} of the global steps in which it "
                f"was there, expected at least {settings.minimum_overlap:.1%}",
                certain=worker.whole,
            )
    spans = {
        worker.name: (min(w.before for w in worker.windows), max(w.after for w in worker.windows))
        for worker in recorded
        if worker.name not in away
    }
    start = max((first for first, _ in spans.values()), default=0)
    end = min((last for _, last in spans.values()), default=0)
    overlap = max(end - start, 0) / run.steps_made if run.steps_made > 0 else 0.0
    if spans and overlap < settings.minimum_overlap:
        findings.add(
            f"all workers were training during {overlap:.1%} of the global steps, "
            f"expected at least {settings.minimum_overlap:.1%}: "
            + listed(f"{name} from {first} to {last}" for name, (first, last) in spans.items()),
            certain=run.whole,
        )
    others = f"all workers but {', '.join(away)}" if away else "all workers"
    good = f"{others} were training from global step {start} to {end} of {run.global_steps}"
    evidence = {"spans": {name: list(span) for name, span in spans.items()}, "overlap": round(overlap, 4)}
    return good if run.rules.shared else run.rules.alone, evidence


def _steps_during(worker: TaskRecords) -> int:
    """Return the number of global steps from each process's first window to its last, summed."""
    reaches = [(life.windows[0].before, life.windows[-1].after) for life in worker.processes if life.windows]
    return sum(max(end - begin, 0) for begin, end in reaches)


@check(
    Card(
        Group.SHARING,
        holds="while each worker trained, the global step counted gradients of other workers, too",
        fails="a worker moved the global step alone",
        unknown="a worker's steps are missing",
        advice=f"A worker moved the global step alone. {DEPLOY}",
        programs="if all workers recorded steps, unless synchronous",
    )
)
def steps_interleave(findings: Findings, run: Run) -> Good:
    """Check that while each worker trained, the global step also received gradients of other workers.

    Figures: `steps_of_others`, {worker: number of others' gradients during its windows}.
    """
    recorded = [worker for worker in run.workers if run.rules.shared and has_steps(worker, findings)]
    foreign = {worker.name: _steps_of_others(run, worker) for worker in recorded}
    of_lost = sum(run.contributions.get(task.name, 0) for task in run.lost)
    for worker in recorded:
        # The global step may be read early or late, so one foreign step alone shows nothing.
        if foreign[worker.name] <= any(window.unplaced for window in worker.windows):
            alone = f"{worker.name} moved the global step alone: no other worker's step came in between"
            findings.add(alone, certain=worker.whole)
        elif of_lost and foreign[worker.name] <= of_lost:
            findings.lacking.append(f"all steps that {worker.name} saw may be those of a lost worker")
    seen = listed(f"{name} saw {steps}" for name, steps in foreign.items())
    good = f"steps of others between a worker's own: {seen}"
    return good if run.rules.shared else run.rules.alone, {"steps_of_others": foreign}


def has_steps(worker: TaskRecords, findings: Findings) -> bool:
    """Return whether the worker recorded a step. If it did not, add a finding.

    The finding is a contradiction if the worker's records are complete, else missing evidence.
    """
    if not worker.windows:
        findings.add(f"{worker.name} recorded no step", certain=worker.whole)
    return bool(worker.windows)


def steps_unrecorded(run: Run) -> str:
    """Return why the records of a user's program lack steps; "" if they may be complete.

    They lack steps if fewer than 90 % of the global steps are recorded, or if a worker's records come at an
    even pace. An unrecorded step looks like a step of another worker: if workers trained alone and recorded
    every tenth step, each would seem to have seen nine steps of others for each step of its own.
    """
    moved = run.global_steps - min((window.before for window in run.windows), default=0)
    recorded = sum(window.steps for window in run.windows)
    if recorded < _MINIMUM_RECORDED * moved:
        return f"its records show {recorded} of {moved} steps: not every step was recorded"
    for worker in run.workers:
        later = [window for process in worker.processes for window in process.windows[1:]]
        paces = Counter((window.after - window.before) / (window.steps or 1) for window in later)
        # Two workers that each record every second step seem to record all, but each at an even pace.
        for pace, windows in paces.most_common(1):
            if pace > 1 and windows > _MOST_OF_ONE_PACE * len(later):
                if windows < _FEWEST_OF_A_PACE:
                    own = sum(window.steps for window in worker.windows)
                    return (
                        f"{worker.name} recorded only {own} of {moved} steps: too few to distinguish steps "
                        "of others from its own unrecorded steps"
                    )
                return (
                    f"{worker.name} recorded exactly one of {pace:g} global steps in {windows} of "
                    f"{len(later)} "
                    "windows: steps of others never come so evenly, a worker that skips records does"
                )
    return ""


def _own_nonces(worker: TaskRecords) -> set[int]:
    return {process.nonce for process in worker.processes if process.nonce is not None}


def _nonces(worker: TaskRecords, field: str) -> dict[str, set[int]]:
    """Return {task: its nonces that this worker read on the ps}, from all of the worker's processes.

    `field` is the field of `peers_ready` that has the nonces, such as "worker_nonces". {} if nothing was
    read.
    """
    nonces: dict[str, set[int]] = {}
    for record in worker.of("peers_ready"):
        for name, nonce in record.integers(field).items():
            nonces.setdefault(name, set()).add(nonce)
    return nonces


def _steps_of_others(run: Run, worker: TaskRecords) -> int:
    stretches = [stretch for process in worker.processes for stretch in process.stretches]
    moved = sum(stretch[-1].after - stretch[0].before for stretch in stretches)
    own = sum(window.steps for stretch in stretches for window in stretch)
    if run.rules.drops_late_gradients:
        own = min(own, run.contributions.get(worker.name, own))
    return moved * run.rules.gradients_per_step - own

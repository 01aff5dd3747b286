"""Checks what psfleet observed in a user's program: where the model is, and which tasks change it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from psfleet.evidence.answer import Findings, Good, counted, listed, size
from psfleet.evidence.card import Card, Group, check
from psfleet.evidence.older_releases import PLACES, could_record
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords, Window
from trainer.contract.records import Record

_DOUBTS = {
    "condition": "a condition in its graph decides whether a run takes a step, so its number of steps is "
    "unknown",
    "gradients": "as far as its graph shows, it applies something other than gradients of a loss",
}
# A run is judged in at most _PARTS parts, each of at least _STEPS_OF_A_PART steps of a worker.
_PARTS, _STEPS_OF_A_PART = 10, 50
# In each part this share of the steps must change the model; a few steps may have begun in the part before.
_MINIMUM_TRAINED, _AT_THE_EDGES = 0.9, 8


def was_observed(worker: TaskRecords) -> bool:
    """Return whether psfleet observed this worker's sessions, and so knows where its parameters were.

    True if a `peers_ready` of the worker has `global_step_on`.
    """
    return any("global_step_on" in record.fields for record in worker.of("peers_ready"))


@check(
    Card(
        Group.SHARING,
        holds=(
            "the workers train the same variables and move the same global step, under the same names on the "
            "same tasks; `not_shown` lists variables that only some workers train"
        ),
        fails=(
            "a worker trains no variable that the lead trains on the same task, or moves another global step"
        ),
        unknown="a worker did not record where its variables lie",
        advice=(
            "Workers keep parameters, or the global step, where other workers do not use them. Place them"
            " with tf.compat.v1.train.replica_device_setter, under the same names in every worker."
        ),
        models="",
        programs="if psfleet observed its sessions",
    )
)
def parameters_shared(findings: Findings, run: Run) -> Good:
    """Check that the workers train the same variables and move the same global step, each on the same task.

    A task identifies a variable by its name: two workers that ask one process for one name get one variable
    (tf.compat.v1.train.replica_device_setter). Other checks show that the processes are the same. Variables
    that only some workers train are no contradiction, but they are not shown to be shared.
    Figures: the number of `variables` that all workers train, and their `bytes`.
    """
    chief = run.chief
    for worker in run.workers:
        if not any("variables" in record.fields for record in worker.of("peers_ready")):
            findings.lacking.append(f"{worker.name} did not record where its parameters are")
            continue
        own, of_chief = _recorded_integers(worker, "variables"), _recorded_integers(chief, "variables")
        if own and of_chief and not own.keys() & of_chief.keys():
            other = f"{worker.name} trained other variables than {chief.name}, or elsewhere: {_places(own)}"
            findings.add(f"{other}, not {_places(of_chief)}", certain=chief.whole)
        own, of_chief = _recorded_integers(worker, "counters"), _recorded_integers(chief, "counters")
        if own and of_chief and not own.keys() & of_chief.keys():
            step = f"{worker.name} has a global step of its own, {listed(own)}"
            findings.add(step, certain=chief.whole)
    shared = _shared([_variables(worker) for worker in run.workers])
    good = f"the parameters of all {counted(len(run.workers), 'worker')} are the same on {_places(shared)}"
    return good, {"variables": len(shared), "bytes": sum(shared.values())}


def unproven_sharing(run: Run) -> dict[str, str]:
    """Return {clause: reason} for each doubt about how the observed workers share a model; {} for none.

    A clause, such as "all that worker1 trains is shared", follows "it is not shown that". If two reasons have
    one clause, the later one in the code counts.
    """
    unknown = unshared_variables(run)
    counters = _shared([_recorded_integers(worker, "counters") for worker in run.workers])
    for worker in run.workers:
        name = worker.name
        if not _variables(worker) and could_record(run, PLACES):
            unknown[f"all that {name} trains is shared"] = "no variable of its model is known"
        if own := _recorded_integers(worker, "counters").keys() - counters.keys():
            unknown[f"{name} counts its steps as the others do"] = f"it also moves {listed(sorted(own))}"
        for doubt in sorted(_doubts(worker) & _DOUBTS.keys()):
            unknown[f"each step of {name} trained the model"] = _DOUBTS[doubt]
        if not has_uncertain_counts(worker) and (why := _steps_without_training(worker)):
            unknown[f"each step of {name} trained the model"] = why
        if unseen := [record.text("reason") for record in worker.of("unseen")]:
            unknown[f"all training of {name} was seen"] = listed(unseen)
        if why := _zeros(worker):
            unknown[f"the gradients of {name} changed anything"] = why
    return unknown


@check(
    Card(
        Group.SHARING,
        holds=(
            "each worker took a step, trained a variable that another worker trains, or computed in another "
            "worker's steps (in-graph)"
        ),
        fails="a worker did none of these",
        unknown="records of steps are missing, and the worker may have taken these steps",
        advice=(
            "A worker took no step: its log shows where it waited. Worker processes that only serve must "
            "compute for another worker, by the devices of its graph."
        ),
        models="",
        programs=(
            "if psfleet saw a worker train, another worker recorded no step, and there is no coordinator"
        ),
    )
)
def workers_trained(findings: Findings, run: Run) -> Good:
    """Check that each worker took a step, trained a variable of another worker, or computed in others' steps.

    A worker without records may have waited all the time, or its records were lost. If the other workers
    recorded all steps, it has taken none, and that is a contradiction; else it is missing evidence. Figures:
    `idle`, the names of the workers that did none of the three.
    """
    idle = [worker.name for worker in run.workers if not _took_part(run, worker)]
    moved = run.global_steps - min((window.before for window in run.windows), default=0)
    recorded = sum(window.steps for window in run.windows)
    is_certain = recorded >= _MINIMUM_TRAINED * moved * max(_replicas(run), 1)
    others = f"the others recorded {recorded} steps, and the global step moved by {moved}"
    for name in idle:
        findings.add(
            f"{name} took no step that psfleet saw, and computed for no other: {others}", certain=is_certain
        )
    serving = [worker.name for worker in run.workers if not worker.windows]
    good = f"{counted(len(run.workers) - len(serving), 'worker')} took steps"
    return good + (f", {listed(serving)} computed in them" if serving else ""), {"idle": idle}


def has_seen_training(run: Run) -> bool:
    """Return whether a worker has a record `trained`: psfleet saw it train.

    Always False for releases that did not write this record.
    """
    return any(worker.of("trained") for worker in run.workers)


def _took_part(run: Run, worker: TaskRecords) -> bool:
    others = [other for other in run.workers if other.name != worker.name]
    trained_with = any(_variables(worker).keys() & _variables(other).keys() for other in others)
    computed_on = [record.text("computed_on") for other in others for record in other.of("trained")]
    served = any(worker.name in tasks.split() for tasks in computed_on)
    return bool(worker.windows) or trained_with or served


def unshared_variables(run: Run) -> dict[str, str]:
    """Return {clause: reason} for each worker that trained variables which not all workers trained.

    A clause, such as "all that worker1 trains is shared", follows "it is not shown that". Return {} if a
    worker recorded no variables at all. psfleet records what any session of a worker trains, also in a
    program that records its steps itself.
    """
    trained = {worker.name: _variables(worker) for worker in run.workers}
    shared = _shared([*trained.values()])
    unknown = {}
    for name, variables in trained.items() if all(trained.values()) else ():
        if apart := {of: count for of, count in variables.items() if of not in shared}:
            lies = listed(f"{of} ({size(count)})" for of, count in apart.items())
            unknown[f"all that {name} trains is shared"] = f"other workers do not train {lies}"
    return unknown


def _steps_without_training(worker: TaskRecords) -> str:
    """Return a clause about the first part of the run in which a worker's steps changed no model, or "".

    In such a part, fewer than 90 % of the steps (minus 8) changed a variable of the model. A program can move
    the global step without training, or by more than it trains.
    Example: "only 20 of its 50 steps from global step 0 to 100 are seen to change a variable of the model".
    """
    for windows in _parts(worker.windows):
        steps, trained = sum(of.steps for of in windows), sum(of.trained or 0 for of in windows)
        if trained < _MINIMUM_TRAINED * steps - _AT_THE_EDGES:
            where = f"from global step {windows[0].before} to {windows[-1].after}"
            return f"only {trained} of its {steps} steps {where} are seen to change a variable of the model"
    return ""


def _parts(windows: Sequence[Window]) -> Iterator[list[Window]]:
    """Yield lists of consecutive windows of a worker, at most ten, of about equally many steps.

    Each has at least 50 steps, except for the last. Windows that do not say how many steps changed the model
    are left out.
    """
    known = [window for window in windows if window.trained is not None]
    least = max(sum(window.steps for window in known) / _PARTS, _STEPS_OF_A_PART)
    part: list[Window] = []
    for window in known:
        part.append(window)
        if sum(of.steps for of in part) >= least:
            yield part
            part = []
    if part:
        yield part


def dropped_gradients(run: Run) -> dict[str, str]:
    """Return {clause: reason} for workers of a synchronous run whose gradients may all have come too late.

    A clause is, for example, "gradients of worker1 counted". A step uses a fixed number of gradients and
    drops all others, whichever worker computed them. Return {} if that number is unknown.
    """
    replicas = _replicas(run)
    moved = run.global_steps - min((window.before for window in run.windows), default=0)
    dropped = sum(worker.local_steps for worker in run.workers) - replicas * moved
    return {
        f"gradients of {worker.name} counted": (
            f"it computed {worker.local_steps}, and {dropped} gradients of all workers came too late for a "
            "step"
        )
        for worker in run.workers
        if replicas and worker.local_steps <= dropped
    }


def has_uncertain_counts(worker: TaskRecords) -> bool:
    """Return whether the worker recorded that a condition decides whether a call takes a step.

    Then some of its recorded steps may not have been made.
    """
    return "condition" in _doubts(worker)


def _doubts(worker: TaskRecords) -> set[str]:
    return {doubt for record in worker.of("peers_ready") for doubt in record.text("doubts").split()}


def with_backups(run: Run) -> Run:
    """Return a synchronous run with rules that know its backup workers: a step does not wait for them.

    The run is returned unchanged if it did not record how many gradients make a step, or recorded more than
    it has workers.
    """
    replicas = _replicas(run)
    if not 0 < replicas <= len(run.workers):
        return run
    return replace(run, rules=replace(run.rules, replication="sync", gradients_per_step=replicas))


def _replicas(run: Run) -> int:
    recorded = [
        settings.get("replicas_to_aggregate") for worker in run.workers for settings in worker.settings
    ]
    return next((of for of in recorded if type(of) is int), 0)


def _zeros(worker: TaskRecords) -> str:
    seen = sum(record.integer("gradients_seen") for record in _ended(worker))
    zeros = sum(record.integer("gradients_of_zero") for record in _ended(worker))
    return f"all {seen} that were checked were 0" if seen and zeros >= seen else ""


def _ended(worker: TaskRecords) -> list[Record]:
    needed = {"gradients_seen", "gradients_of_zero"}
    return [record for record in worker.of("finished") if needed <= record.fields.keys()]


def _recorded_integers(worker: TaskRecords, field: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in worker.of("peers_ready"):
        found |= record.integers(field)
    return found


def _variables(worker: TaskRecords) -> dict[str, int]:
    """Return {"task name": bytes} of each variable that the worker trained, at any time.

    Each key has the task that holds the variable, a space, and the variable's name.
    """
    found = _recorded_integers(worker, "variables")
    for record in worker.of("trained"):
        found |= record.integers("variables")
    return found


def _shared(recorded: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return {name: bytes} of the variables or counters that all workers recorded; {} for no workers.

    `recorded` has one mapping per worker; the bytes are those of the first.
    """
    names = set.intersection(*map(set, recorded)) if recorded else set()
    return {name: count for name, count in recorded[0].items() if name in names} if recorded else {}


def _places(variables: Mapping[str, int]) -> str:
    bytes_on: dict[str, int] = {}
    for name, count in variables.items():
        place = name.partition(" ")[0]
        bytes_on[place] = bytes_on.get(place, 0) + count
    return listed(f"{place} ({size(count)})" for place, count in sorted(bytes_on.items()))

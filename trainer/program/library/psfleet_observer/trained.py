"""The variables that this process trains, in any session, whether or not the steps are counted.

A program may train in sessions whose steps are not counted: in another graph, without a counter, or on a
server of its own. So the variables of the counted steps may be fewer than the program trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from psfleet_observer import graphs, meeting, training_runs
from psfleet_observer.process import task_to_note

if TYPE_CHECKING:
    import psfleet_records
    import tensorflow as tf

_RUNS_KEPT = 1000
_OWN = "_psfleet_trains"  # the attribute of a session: the ids of a run's operations -> whether it trains
_THIS_HOST = {"localhost", "127.0.0.1", "[::1]"}

_recorded: set[str] = set()
_computed_on: set[str] = set()
_unseen: set[str] = set()


def note_run(
    session: tf.compat.v1.Session, targets: Sequence[tf.Operation], fetches: Sequence[tf.Tensor]
) -> bool:
    """Return whether a run trains the model, by its operations `targets` and tensors `fetches`.

    The first call for a run also records the variables that it trains, if they are new.
    """
    if not graphs.trains(session.graph):
        return False
    known = session.__dict__.setdefault(_OWN, {})
    key = (*map(id, targets), 0, *map(id, fetches))
    if key not in known:
        if len(known) >= _RUNS_KEPT:
            known.clear()
        computed = graphs.dependencies_of([*targets, *(tensor.op for tensor in fetches)])
        variables = _trained_by(session.graph, computed)
        # Keep references to the operations, so that no other operations get their ids.
        known[key] = bool(variables), targets, fetches
        if variables:
            _record(session, variables, {operation.device for operation in computed})
    trains: bool = known[key][0]
    return trains


def note_unseen(reason: str) -> None:
    """Record `reason`, why some of this process's training is not seen; each reason only once."""
    task = task_to_note() if reason not in _unseen else None
    if task is not None:
        _unseen.add(reason)
        task.note("unseen", {"reason": reason})


def _record(session: tf.compat.v1.Session, variables: Iterable[tf.Operation], devices: Iterable[str]) -> None:
    """Record the variables that a run trains, and the tasks of its `devices`, if some of them are new."""
    task = task_to_note()
    if task is None:
        return
    import tensorflow as tf

    places = meeting.places_of(
        {variable: training_runs.size_of(variable) for variable in variables}, task.name
    )
    if not _is_of_the_run(tf.compat.as_str(session.sess_str or ""), task):
        # The tasks of another cluster may have the same names.
        places, devices = {f"{task.name} {name}": size for name, size in places.items()}, ()
    tasks = {meeting.place_of(device, task.name) for device in devices}
    new = {name: size for name, size in places.items() if name not in _recorded}
    if new or not tasks <= _computed_on:
        _recorded.update(new)
        _computed_on.update(tasks)
        task.note("trained", {"variables": new, "computed_on": " ".join(sorted(_computed_on))})


def _trained_by(graph: tf.Graph, computed: set[tf.Operation]) -> frozenset[tf.Operation]:
    """Return the model's variables that a run trains; `computed` are the operations of the run.

    They are the variables that the run's optimizers update, and the variables that the run sets to a value
    computed from gradients, if a loss or a gradient reads them. So an average, a metric or a copy does not
    count as training.
    """
    notes = graphs.notes_of(graph)
    updated = {
        variable.op
        for update in notes.updates
        if update.operation in computed
        for _, variable in update.pairs
    }
    calls = [each for each in computed if each.type.removeprefix("Stateless") in training_runs.CALLING]
    updated |= {variable for call in calls for variable in _written_in_functions(graph, call)}
    derived = graphs.derived_from(notes.gradients)
    writing = [each for each in computed if each.type.startswith(graphs.WRITING) and len(each.inputs)]
    written = {
        variable
        for operation in writing
        if (variable := graphs.variable_of(operation.inputs[0].op)) is not None
        and any(tensor.op in derived for tensor in [*operation.inputs][1:])
    }
    return frozenset(
        variable
        for variable in updated | (written & training_runs.read_by_losses(graph))
        if variable.graph is graph
    )


def _written_in_functions(graph: tf.Graph, call: tf.Operation) -> set[tf.Operation]:
    """Return the model's variables that the functions of the operation `call` write; empty if none."""
    inputs = {
        place: variable
        for place, tensor in enumerate(call.inputs)
        if (variable := graphs.variable_of(tensor.op)) is not None
    }
    model = training_runs.parameters_of(graph, frozenset()).keys() if inputs else set()
    if model.isdisjoint(inputs.values()):
        return set()
    node, functions = call.node_def, training_runs.functions_of(graph, call)
    return {
        variable
        for place, variable in inputs.items()
        if variable in model and graphs.writes([node], {node.input[place].partition(":")[0]}, functions)
    }


def _is_of_the_run(target: str, task: psfleet_records.Task) -> bool:
    """Return whether a session's target is this process ("") or a server of the run's cluster.

    A name of this host needs this task's port, and a name that is not in the cluster's addresses needs a port
    of one of them. True if the addresses are unknown.
    """
    address = target.rpartition("//")[2]
    host, _, port = address.rpartition(":")
    if not target or not task.addresses or address in task.addresses:
        return True
    if host in _THIS_HOST:
        return port == task.address.rpartition(":")[2]
    return port in {other.rpartition(":")[2] for other in task.addresses}

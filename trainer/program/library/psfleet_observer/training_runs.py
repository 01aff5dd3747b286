"""The analysis of a session's runs: which runs train, what they write, and which counters they move."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psfleet_observer.graphs import (
    WRITING,
    Update,
    dependencies_of,
    dependents_of,
    names_of_functions,
    notes_of,
    tensors_of,
    variable_of,
)
from psfleet_observer.meeting import place_of

if TYPE_CHECKING:
    import tensorflow as tf

# Types of cheap operations. They may be added to a step, to get its loss from values that the step computes
# anyway.
_HARMLESS = {
    *("Mean", "Sum", "AddN", "AddV2", "Add", "Mul", "RealDiv", "DivNoNan", "Div", "Neg", "Sub", "Square"),
    *("Cast", "Const", "Identity", "Reshape", "Range", "Rank", "Shape", "Size", "Prod", "Maximum"),
}
_ADDING = {"AssignAdd", "AssignAddVariableOp"}
_PASSING = {"Switch", "RefSwitch", "Enter", "RefEnter"}
CALLING = {"If", "While", "Case", "PartitionedCall", "StatefulPartitionedCall"}
# Only some small gradients are fetched, and none from another machine.
_MOST_PROBES, _MOST_VALUES = 4, 16384


@dataclass(frozen=True)
class Step:
    """A run that trains.

    Attributes:
        steps: by how much the run moves the counters.
        certain: whether the run always moves them by this much.
        replicas: for how many gradients a step of a synchronous optimizer waits; 0 for other optimizers.
        loss: the loss; None if unknown.
        loss_index: the index of the loss among the results, with `extra_fetches` at the end; None if unknown.
        fetches_loss: whether the program itself fetches the loss.
        probes: small gradients to fetch, to see whether they are zero.
        writes: the model's variables that the run writes.
        first_seconds: how long its first run took, in which TensorFlow prepared it; [] before.

    """

    steps: int
    certain: bool = True
    replicas: int = 0
    loss: tf.Tensor | None = None
    loss_index: int | None = None
    fetches_loss: bool = False
    probes: tuple[tf.Tensor, ...] = ()
    writes: frozenset[tf.Operation] = frozenset()
    first_seconds: list[float] = field(default_factory=list)

    @functools.cached_property
    def without_extra(self) -> Step:
        """The same run, but with no `extra_fetches`; the loss is then known only if `fetches_loss`."""
        if self.fetches_loss:
            return replace(self, probes=())
        return replace(self, loss=None, loss_index=None, probes=())

    @functools.cached_property
    def extra_fetches(self) -> list[tf.Tensor]:
        """The tensors to fetch beside the program's own: the loss unless `fetches_loss`, then the probes."""
        return [*([] if self.loss is None or self.fetches_loss else [self.loss]), *self.probes]


@dataclass(frozen=True)
class _Move:
    """An operation that moves a counter.

    Attributes:
        waiting: the operation itself, and all operations that depend on it.
        steps: by how much it moves the counter; 1 if unknown.
        certain: whether it always does.
        replicas: see `Step`.

    """

    waiting: frozenset[tf.Operation]
    steps: int
    certain: bool
    replicas: int = 0


@dataclass
class _Analysis:
    """The analysis of a graph, which is valid while the graph has this `version`.

    Attributes:
        counters: what `counters_of` returns.
        moves: the operations that move a counter.
        applied: (update, its operation and all operations that depend on it) of each update.

    """

    version: int = -1
    counters: list[tf.Variable] = field(default_factory=list)
    moves: list[_Move] = field(default_factory=list)
    applied: list[tuple[Update, frozenset[tf.Operation]]] = field(default_factory=list)


_analyses: WeakKeyDictionary[tf.Graph, _Analysis] = WeakKeyDictionary()


def counters_of(graph: tf.Graph) -> list[tf.Variable]:
    """Return the variables that count a graph's steps: the counters of its optimizers, else its global step.

    If some of the optimizers' counters are on other tasks, return only these. Return [] if there is no
    counter.
    """
    return _analyse(graph).counters


def step_of(graph: tf.Graph, targets: Sequence[tf.Operation], fetches: Sequence[tf.Tensor]) -> Step | None:
    """Return the training step in a run of these operations and tensors.

    Return None if the run moves no counter. Of several losses, the step's is the first of the graph, if the
    run trains by it.
    """
    analysis, ran = _analyse(graph), [*targets, *(tensor.op for tensor in fetches)]
    moves = [move for move in analysis.moves if not move.waiting.isdisjoint(ran)]
    if not moves:
        return None
    computed = dependencies_of(ran)
    step = Step(
        steps=sum(move.steps for move in moves),
        certain=all(move.certain for move in moves),
        replicas=max(move.replicas for move in moves),
        probes=_probes(graph, analysis, ran, computed),
        writes=_written(graph, computed),
    )
    losses = list(notes_of(graph).losses.values())
    loss = losses[0] if losses else None
    if loss is None or loss.graph is not graph or loss.shape.rank != 0 or not loss.dtype.is_floating:
        return step
    # Only one of several losses is recorded, because different losses of a worker make no curve.
    if not _is_of(loss, analysis, ran):
        return step
    names = [tensor.name for tensor in fetches]
    same = list(_same_values(loss))
    for tensor in same:
        if tensor.name in names:
            return replace(step, loss=tensor, loss_index=names.index(tensor.name), fetches_loss=True)
    if _costs_nothing(graph, same[-1], computed):
        return replace(step, loss=same[-1], loss_index=len(fetches))
    return step


def parameters_of(graph: tf.Graph, written: frozenset[tf.Operation]) -> dict[tf.Operation, int]:
    """Return {variable's operation: bytes} of the variables of the model.

    They are the variables that optimizers update, those for which gradients are computed, `written` (those
    that steps write and losses read), and those that the program declares trainable. 0 bytes means unknown.
    """
    import tensorflow as tf

    notes = notes_of(graph)
    variables = [variable.op for update in notes.updates for _, variable in update.pairs]
    variables += [*notes.losses, *written]
    variables += [each.op for each in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)]
    return {each: size_of(each) for each in dict.fromkeys(variables) if each.graph is graph}


def functions_of(graph: tf.Graph, call: tf.Operation) -> dict[str, Any]:
    """Return {name: FunctionDef} of all functions that an operation calls, directly or indirectly."""
    definitions: dict[str, Any] = {}
    names = names_of_functions(call.node_def.attr)
    while names:
        name = names.pop()
        function = None if name in definitions else graph._get_function(name)
        if function is not None:
            definitions[name] = function.definition
            names += [
                called for node in definitions[name].node_def for called in names_of_functions(node.attr)
            ]
    return definitions


def strange_gradients(graph: tf.Graph) -> list[str]:
    """Return the sorted names of the variables whose applied gradients come from no loss; [] if none."""
    notes = notes_of(graph)
    return sorted(
        variable.op.name
        for update in notes.updates
        for gradient, variable in update.pairs
        if update.operation.graph is graph
        and dependencies_of(tensor.op for tensor in tensors_of(gradient)).isdisjoint(notes.gradients)
    )


def _analyse(graph: tf.Graph) -> _Analysis:
    analysis = _analyses.setdefault(graph, _Analysis())
    if analysis.version != graph.version:
        updates = notes_of(graph).updates
        analysis.counters = _counters(graph, updates)
        analysis.applied = [
            (update, frozenset(dependents_of(update.operation)))
            for update in updates
            if update.operation.graph is graph
        ]
        analysis.moves = [
            _Move(waiting, 1, update.certain, update.replicas)
            for update, waiting in analysis.applied
            if update.replicas
        ]
        # The chief moves a synchronous optimizer's counter, once there are enough gradients.
        together = {update.counter.op for update in updates if update.replicas and update.counter is not None}
        for counter in analysis.counters:
            if counter.op not in together:
                analysis.moves += _moves(graph, counter.op)
        analysis.version = graph.version
    return analysis


def _counters(graph: tf.Graph, updates: Sequence[Update]) -> list[tf.Variable]:
    import tensorflow as tf

    keys = tf.compat.v1.GraphKeys
    moved = {update.counter.op: update.counter for update in updates if update.counter is not None}
    if moved:
        # A counter in this process does not count others' steps, so counters on other tasks come first.
        own = os.environ.get("PSFLEET_JOB", "") + os.environ.get("PSFLEET_TASK_INDEX", "")
        apart = [each for each in moved.values() if place_of(each.device, own) != own]
        return apart or [*moved.values()]
    variables = graph.get_collection(keys.GLOBAL_VARIABLES)
    named = [each for each in variables if each.op.name.endswith("global_step")]
    return [*graph.get_collection(keys.GLOBAL_STEP), *named][:1]


def _moves(graph: tf.Graph, counter: tf.Operation) -> list[_Move]:
    """Return the operations that add to a counter; those in a condition or a function are not `certain`."""
    moves, to_visit = [], [counter]
    while to_visit:
        for user in [user for out in to_visit.pop().outputs for user in out.consumers()]:
            if user.type in _PASSING:
                to_visit.append(user)
            elif user.type in _ADDING:
                delta = _constant(user.inputs[1])
                certain = delta is not None and user._get_control_flow_context() is None
                moves.append(_Move(frozenset(dependents_of(user)), delta or 1, certain))
            elif user.type.removeprefix("Stateless") in CALLING and _calls_a_write(graph, user):
                moves.append(_Move(frozenset(dependents_of(user)), 1, certain=False))
    return moves


def _constant(tensor: tf.Tensor) -> int | None:
    import tensorflow as tf

    value = tf.get_static_value(tensor)
    return None if value is None or int(value) < 1 else int(value)


def _calls_a_write(graph: tf.Graph, operation: tf.Operation) -> bool:
    """Return whether a function that an operation calls has an operation that writes any variable."""
    functions = functions_of(graph, operation).values()
    return any(node.op.startswith(WRITING) for function in functions for node in function.node_def)


def _written(graph: tf.Graph, computed: set[tf.Operation]) -> frozenset[tf.Operation]:
    """Return the variables, without counters, that a run writes and that losses or gradients depend on."""
    writing = [each for each in computed if each.type.startswith(WRITING) and len(each.inputs)]
    written = {variable for each in writing if (variable := variable_of(each.inputs[0].op)) is not None}
    written -= {counter.op for counter in counters_of(graph)}
    return frozenset(written & read_by_losses(graph))


def read_by_losses(graph: tf.Graph) -> set[tf.Operation]:
    """Return the losses and gradients of a graph, and all operations on which they depend."""
    notes = notes_of(graph)
    return dependencies_of(
        [*(loss.op for loss in notes.losses.values() if loss.graph is graph), *notes.gradients]
    )


def _is_of(loss: tf.Tensor, analysis: _Analysis, ran: Sequence[tf.Operation]) -> bool:
    """Return whether a run of the operations `ran` trains by this loss.

    True if the graph has only this loss, if the run applies no known gradients, or if it updates a variable
    by the gradient of this loss.
    """
    losses = notes_of(loss.graph).losses
    applied = [update for update, waiting in analysis.applied if not waiting.isdisjoint(ran)]
    if not applied or len(set(map(id, losses.values()))) == 1:
        return True
    return any(losses.get(variable.op) is loss for update in applied for _, variable in update.pairs)


def _same_values(tensor: tf.Tensor) -> Iterator[tf.Tensor]:
    """Yield a tensor, then each tensor that it passes on unchanged.

    A program may compute its gradients from an identity of the loss that waits for other operations, such as
    the averages of a batch normalization, and fetch the loss itself.
    """
    yield tensor
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
        yield tensor


def _probes(
    graph: tf.Graph, analysis: _Analysis, ran: Sequence[tf.Operation], computed: set[tf.Operation]
) -> tuple[tf.Tensor, ...]:
    """Return at most four gradients that a run computes and applies, the smallest first.

    Gradients on a ps, and those with more than 16384 numbers or of unknown size, are left out.
    """
    tensors = [
        tensor
        for update, waiting in analysis.applied
        if not waiting.isdisjoint(ran)
        for gradient, _ in update.pairs
        for tensor in tensors_of(gradient)
    ]
    small = [
        tensor
        for tensor in tensors
        if tensor.op in computed
        and graph.is_fetchable(tensor)
        and "/job:ps" not in tensor.device
        and 0 < (tensor.shape.num_elements() or 0) <= _MOST_VALUES
        and tensor.dtype.is_floating
    ]
    return tuple(sorted(small, key=lambda tensor: int(tensor.shape.num_elements() or 0))[:_MOST_PROBES])


def _costs_nothing(graph: tf.Graph, loss: tf.Tensor, computed: set[tf.Operation]) -> bool:
    """Return whether the loss needs only cheap arithmetic on what the run computes (`computed`) anyway.

    False if it needs another input, waits for something, or cannot be fetched.
    """
    if not graph.is_fetchable(loss):
        return False
    to_visit = [loss.op]
    while to_visit:
        operation = to_visit.pop()
        if operation in computed:
            continue
        if operation.type not in _HARMLESS or operation.control_inputs:
            return False
        to_visit.extend(tensor.op for tensor in operation.inputs)
    return True


def size_of(variable: tf.Operation) -> int:
    """Return the size of a variable in bytes; 0 if its shape is unknown."""
    import tensorflow as tf

    shape = tf.TensorShape(variable.get_attr("shape"))
    return int(tf.as_dtype(variable.get_attr("dtype")).base_dtype.size * (shape.num_elements() or 0))

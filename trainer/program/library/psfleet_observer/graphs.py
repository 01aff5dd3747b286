"""What a program's optimizers and gradients tell of its graph, while it is built."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psfleet_observer.guard import guarded

if TYPE_CHECKING:
    import tensorflow as tf

# How operations that write variables are called.
WRITING = (
    *("Assign", "Scatter", "Apply", "SparseApply", "ResourceScatter", "ResourceApply"),
    *("ResourceSparseApply",),
)
# What makes one loss of several, or leaves it as it is.
_SAME_LOSS = {"Identity", "Mean", "Sum"}
_VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}


@dataclass(frozen=True)
class Update:
    """An operation that applies gradients, and the counter that it moves where it was given one.

    `replicas` are the gradients that a step of a synchronous optimizer waits for; 0 of the others, whose step
    is their run. One that lies within another graph, or a condition, may be made or not: `certain`.
    """

    operation: tf.Operation
    counter: tf.Variable | None
    pairs: Sequence[tuple[Any, tf.Variable]] = ()
    replicas: int = 0
    certain: bool = True


@dataclass
class Known:
    """What was noted of a graph: of which losses gradients were asked for, by what, and the results.

    `losses` has the loss by the operation of each variable, in the order of the calls; `targets` is all of
    which gradients were asked for, also of variables that are no operations.
    """

    updates: list[Update] = field(default_factory=list)
    losses: dict[tf.Operation, tf.Tensor] = field(default_factory=dict)
    gradients: set[tf.Operation] = field(default_factory=set)
    targets: set[tf.Operation] = field(default_factory=set)


_graphs: WeakKeyDictionary[tf.Graph, Known] = WeakKeyDictionary()
_inside = threading.local()


def known_of(graph: tf.Graph) -> Known:
    """Return what is noted of a graph so far."""
    return _graphs.setdefault(graph, Known())


def trains(graph: tf.Graph) -> bool:
    """Whether gradients were asked for, or applied, in a graph."""
    return graph in _graphs


def wrap_gradients(module: ModuleType) -> None:
    """Note of which loss the gradients of a variable are."""
    for name in ("gradients", "gradients_v2"):
        setattr(module, name, _noting_loss(getattr(module, name)))


def wrap_tapes(module: ModuleType) -> None:
    """The same of gradients that a tape finds in a graph."""
    find: Callable[..., Any] = module.GradientTape.gradient

    @functools.wraps(find)
    def noting(self: Any, target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
        found = find(self, target, sources, *arguments, **named)
        _note_loss(target, sources, found)
        return found

    module.GradientTape.gradient = noting


def _noting_loss(gradients: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gradients)
    def noting(ys: Any, xs: Any, *arguments: Any, **named: Any) -> Any:
        found = gradients(ys, xs, *arguments, **named)
        _note_loss(ys, xs, found)
        return found

    return noting


def wrap_optimizers(module: ModuleType) -> None:
    """Note which operation applies which gradients, and moves which counter; and what the program minimizes.

    That is its loss, where an optimizer asks for the gradients of a multiple of it (a loss scale).
    """
    _wrap_apply_gradients(module.Optimizer)
    minimize: Callable[..., Any] = module.Optimizer.minimize

    @functools.wraps(minimize)
    def noting(self: Any, loss: Any, *arguments: Any, **named: Any) -> Any:
        outer, _inside.loss = getattr(_inside, "loss", None), loss if hasattr(loss, "op") else None
        try:
            return minimize(self, loss, *arguments, **named)
        finally:
            _inside.loss = outer

    module.Optimizer.minimize = noting


def wrap_synchronous_optimizers(module: ModuleType) -> None:
    """The same of those that wait for gradients of several workers."""
    _wrap_apply_gradients(module.SyncReplicasOptimizer)


def _wrap_apply_gradients(optimizer: Any) -> None:
    apply: Callable[..., Any] = optimizer.apply_gradients

    @functools.wraps(apply)
    def noting(self: Any, grads_and_vars: Any, global_step: Any = None, *more: Any, **named: Any) -> Any:
        pairs = list(grads_and_vars)
        # An optimizer may apply through another one: what the program runs is of the outer.
        outer, _inside.apply = getattr(_inside, "apply", False), True
        try:
            operation = apply(self, pairs, global_step, *more, **named)
        finally:
            _inside.apply = outer
        if not outer:
            _note_update(operation, global_step, pairs, getattr(self, "_replicas_to_aggregate", 0))
        return operation

    optimizer.apply_gradients = noting


@guarded
def _note_loss(ys: Any, xs: Any, found: Any) -> None:
    import tensorflow as tf

    if tf.executing_eagerly():
        return
    losses = ys if isinstance(ys, list | tuple) else [ys]
    graph = getattr(losses[0], "graph", None) if losses else None
    if graph is None:
        return
    known = known_of(_outermost(graph))
    minimized = getattr(_inside, "loss", None)
    loss = losses[0] if minimized is None else minimized
    known.targets.add(loss.op)
    known.gradients |= {part.op for one in tf.nest.flatten(found) for part in tensors_of(one)}
    for x in tf.nest.flatten(xs):
        variable = variable_of(getattr(x, "op", None))
        if variable is not None:
            known.losses.setdefault(variable, loss)


@guarded
def _note_update(operation: Any, counter: Any, pairs: Sequence[Any], replicas: int) -> None:
    import tensorflow as tf

    if tf.executing_eagerly() or operation is None:
        return
    operation = getattr(operation, "op", operation)
    graph = _outermost(operation.graph)
    certain = graph is operation.graph and operation._get_control_flow_context() is None
    applied = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    known_of(graph).updates.append(Update(operation, counter, applied, int(replicas), certain))


def tensors_of(gradient: Any) -> list[tf.Tensor]:
    """Return what a gradient consists of: itself, or the rows of a table and which they are."""
    of = getattr(gradient, "values", gradient)  # rows have `op` and `consumers` as a tensor has, and no `ref`
    return [of] if hasattr(of, "op") and hasattr(of, "consumers") else []


def variable_of(operation: tf.Operation | None) -> tf.Operation | None:
    """Return the operation of the variable that this one is, or reads, or passes on; None of what is none."""
    while operation is not None and operation.type not in _VARIABLES:
        passes_on = operation.type in {
            "ReadVariableOp",
            "Identity",
            "Switch",
            "RefSwitch",
            "Enter",
            "RefEnter",
        }
        operation = operation.inputs[0].op if passes_on and len(operation.inputs) else None
    return operation


def names_of_functions(attributes: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that a node with these attributes calls."""
    names = [value.func.name for value in attributes.values() if value.func.name]
    return names + [one.name for value in attributes.values() for one in value.list.func]


def _outermost(graph: Any) -> tf.Graph:
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph


def place_of_loss(function: Any) -> int | None:
    """Return where among the results of a function its loss is, if it is: also the mean or sum of several."""
    import tensorflow as tf

    targets = known_of(_outermost(function.graph)).targets
    for place, tensor in enumerate(tf.nest.flatten(function.structured_outputs)):
        if not (tf.is_tensor(tensor) and tensor.shape.rank == 0 and tensor.dtype.is_floating):
            continue
        operation = tensor.op
        while operation not in targets and operation.type in _SAME_LOSS:
            operation = operation.inputs[0].op
        if operation in targets:
            return place
    return None


def after(operation: tf.Operation) -> set[tf.Operation]:
    """Return the operation, and those that wait for it."""
    return _closure(
        [operation],
        lambda of: [*(user for out in of.outputs for user in out.consumers()), *of._control_outputs],
    )


def before(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Return the operations, and those that they wait for."""
    return _closure(operations, lambda of: [*(tensor.op for tensor in of.inputs), *of.control_inputs])


def _closure(
    first: Iterable[tf.Operation], near: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> set[tf.Operation]:
    found = set(first)
    left = list(found)
    while left:
        fresh = set(near(left.pop())) - found
        found |= fresh
        left.extend(fresh)
    return found

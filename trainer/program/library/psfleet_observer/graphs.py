"""Which runs of a session are training steps, by the graph of the program, as its optimizers tell."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psfleet_observer.guard import guarded

if TYPE_CHECKING:
    import tensorflow as tf

# What may be computed in a step only so that its loss is known: sums of what it computes anyway.
_HARMLESS = {
    *("Mean", "Sum", "AddN", "AddV2", "Add", "Mul", "RealDiv", "DivNoNan", "Div", "Neg", "Sub", "Square"),
    *("Cast", "Const", "Identity", "Reshape", "Range", "Rank", "Shape", "Size", "Prod", "Maximum"),
}
_ADDING = {"AssignAdd", "AssignAddVariableOp"}


@dataclass(frozen=True)
class Update:
    """An operation that applies gradients and moves a global step, or has it moved once enough are there."""

    operation: tf.Operation
    global_step: tf.Variable
    variables: Sequence[tf.Variable] = ()
    loss: tf.Tensor | None = None
    synchronous: bool = False


@dataclass(frozen=True)
class Step:
    """A run that trains: how many global steps it makes, and which loss belongs to it, where that is known.

    `place` is that of the loss among the results; `known` says that the program itself fetches it.
    """

    steps: int
    update: Update
    loss: tf.Tensor | None = None
    place: int | None = None
    known: bool = False

    @functools.cached_property
    def without_loss(self) -> Step:
        """The same run where nobody asks for the loss."""
        return Step(self.steps, self.update)


@dataclass
class _Known:
    """What the optimizers have said of a graph. `losses` has the loss by the name of each variable."""

    updates: list[Update] = field(default_factory=list)
    losses: dict[str, tf.Tensor] = field(default_factory=dict)
    moving: tuple[int, list[tuple[Update, set[tf.Operation]]]] = (-1, [])


_graphs: WeakKeyDictionary[tf.Graph, _Known] = WeakKeyDictionary()
_inside = threading.local()


def wrap_gradients(module: ModuleType) -> None:
    """Note of which loss the gradients of a variable are."""
    for name in ("gradients", "gradients_v2"):
        setattr(module, name, _noting_loss(getattr(module, name)))


def _noting_loss(gradients: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gradients)
    def noting(ys: Any, xs: Any, *arguments: Any, **named: Any) -> Any:
        _note_loss(ys, xs)
        return gradients(ys, xs, *arguments, **named)

    return noting


def wrap_optimizers(module: ModuleType) -> None:
    """Note which operation applies gradients and moves which global step."""
    _wrap_apply_gradients(module.Optimizer, synchronous=False)


def wrap_synchronous_optimizers(module: ModuleType) -> None:
    """The same of those that wait for gradients of several workers."""
    _wrap_apply_gradients(module.SyncReplicasOptimizer, synchronous=True)


def _wrap_apply_gradients(optimizer: Any, *, synchronous: bool) -> None:
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
        if not outer and global_step is not None:
            _note_update(operation, global_step, [variable for _, variable in pairs], synchronous)
        return operation

    optimizer.apply_gradients = noting


@guarded
def _note_loss(ys: Any, xs: Any) -> None:
    losses = ys if isinstance(ys, list | tuple) else [ys]
    graph = getattr(losses[0], "graph", None) if len(losses) == 1 else None
    if graph is not None:
        for x in xs if isinstance(xs, list | tuple) else [xs]:
            _known(graph).losses[x.op.name] = losses[0]


@guarded
def _note_update(
    operation: Any, global_step: tf.Variable, variables: Sequence[tf.Variable], synchronous: bool
) -> None:
    import tensorflow as tf

    if tf.executing_eagerly() or operation is None:
        return
    operation = getattr(operation, "op", operation)
    known = _known(operation.graph)
    loss = next((known.losses[v.op.name] for v in variables if v.op.name in known.losses), None)
    known.updates.append(Update(operation, global_step, variables, loss, synchronous))


def step_of(graph: tf.Graph, targets: Sequence[tf.Operation], fetches: Sequence[tf.Tensor]) -> Step | None:
    """Return what step it is to run these operations and tensors; None where it is none."""
    ran = [*targets, *(tensor.op for tensor in fetches)]
    made = [update for update, after in _moving(graph) if any(operation in after for operation in ran)]
    if not made:
        return None
    update = next((update for update in made if update.loss is not None), made[0])
    names = [tensor.name for tensor in fetches]
    if update.loss is None or update.loss.shape.rank != 0 or not update.loss.dtype.is_floating:
        return Step(len(made), update)
    if update.loss.name in names:
        return Step(len(made), update, update.loss, names.index(update.loss.name), known=True)
    if _costs_nothing(graph, update.loss, ran):
        return Step(len(made), update, update.loss, len(fetches))
    return Step(len(made), update)


def updates_of(graph: tf.Graph) -> list[Update]:
    """Return what moves a global step in a graph; nothing of a graph without gradients."""
    return [update for update, _ in _moving(graph)] if graph in _graphs else []


def parameters_of(graph: tf.Graph) -> list[tf.Variable]:
    """Return the variables that gradients are applied to, else those that the program calls trainable."""
    import tensorflow as tf

    updated = {of.op.name: of for update in _known(graph).updates for of in update.variables}
    return [*updated.values()] or graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)


def _known(graph: tf.Graph) -> _Known:
    return _graphs.setdefault(graph, _Known())


def _moving(graph: tf.Graph) -> list[tuple[Update, set[tf.Operation]]]:
    """Return each update of the graph with the operations whose run makes it."""
    known = _known(graph)
    version, found = known.moving
    if version != graph.version:
        updates = known.updates or _additions(graph)
        found = [(update, _after(update.operation)) for update in updates]
        known.moving = (graph.version, found)
    return found


def _additions(graph: tf.Graph) -> list[Update]:
    """Return what adds to the graph's global step, for programs that add to it themselves."""
    import tensorflow as tf

    keys = tf.compat.v1.GraphKeys
    named = [of for of in graph.get_collection(keys.GLOBAL_VARIABLES) if of.op.name.endswith("global_step")]
    global_step = next(iter([*graph.get_collection(keys.GLOBAL_STEP), *named]), None)
    if global_step is None:
        return []
    users = global_step.op.outputs[0].consumers()
    losses = list({loss.name: loss for loss in _known(graph).losses.values()}.values())
    loss = losses[0] if len(losses) == 1 else None
    return [Update(operation, global_step, (), loss) for operation in users if operation.type in _ADDING]


def _after(operation: tf.Operation) -> set[tf.Operation]:
    """Return the operation, and those that wait for it."""
    return _closure(operation, lambda of: [*_consumers(of), *of._control_outputs])


def _before(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Return the operations, and those that they wait for."""
    found: set[tf.Operation] = set()
    for operation in operations:
        found |= _closure(operation, lambda of: [*(tensor.op for tensor in of.inputs), *of.control_inputs])
    return found


def _consumers(operation: tf.Operation) -> list[tf.Operation]:
    return [consumer for tensor in operation.outputs for consumer in tensor.consumers()]


def _closure(
    first: tf.Operation, near: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> set[tf.Operation]:
    found, left = {first}, [first]
    while left:
        fresh = set(near(left.pop())) - found
        found |= fresh
        left.extend(fresh)
    return found


def _costs_nothing(graph: tf.Graph, loss: tf.Tensor, ran: Sequence[tf.Operation]) -> bool:
    """Whether the loss needs nothing but arithmetic on what the run computes: no other input, no wait."""
    if not graph.is_fetchable(loss):
        return False
    computed, left = _before(ran), [loss.op]
    while left:
        operation = left.pop()
        if operation in computed:
            continue
        if operation.type not in _HARMLESS or operation.control_inputs:
            return False
        left.extend(tensor.op for tensor in operation.inputs)
    return True

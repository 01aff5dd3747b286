"""Notes about a program's optimizers and gradients, taken while the program builds its graph."""

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

# Types of operations that write variables begin with one of these.
WRITING = (
    *("Assign", "Scatter", "Apply", "SparseApply", "ResourceScatter", "ResourceApply"),
    *("ResourceSparseApply",),
)
# Types of operations that pass a loss on, or combine several losses into one.
_SAME_LOSS = {"Identity", "Mean", "Sum"}
_VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}


@dataclass(frozen=True)
class Update:
    """An operation that applies gradients.

    Attributes:
        operation: the operation.
        counter: the counter that it moves; None if it moves none.
        pairs: (applied gradient, its variable) of each variable.
        replicas: for how many gradients a step of a synchronous optimizer waits; 0 for other optimizers,
            which make a step in each run of the operation.
        certain: False if the operation is in a function or a condition, which may not run it.

    """

    operation: tf.Operation
    counter: tf.Variable | None
    pairs: Sequence[tuple[Any, tf.Variable]] = ()
    replicas: int = 0
    certain: bool = True


@dataclass
class GraphNotes:
    """The notes about a graph: its updates, losses and gradients.

    Attributes:
        updates: the operations that apply gradients.
        losses: {variable's operation: the first loss whose gradient for the variable was computed}.
        gradients: the operations that compute gradients.
        targets: all operations whose gradients the program computes, with respect to anything.

    """

    updates: list[Update] = field(default_factory=list)
    losses: dict[tf.Operation, tf.Tensor] = field(default_factory=dict)
    gradients: set[tf.Operation] = field(default_factory=set)
    targets: set[tf.Operation] = field(default_factory=set)


_graphs: WeakKeyDictionary[tf.Graph, GraphNotes] = WeakKeyDictionary()
_inside = threading.local()
_when_elsewhere: list[Callable[[], object]] = []


def notes_of(graph: tf.Graph) -> GraphNotes:
    """Return the notes about a graph, which later notes change; create empty ones if there are none.

    From then on, `trains(graph)` is True.
    """
    return _graphs.setdefault(graph, GraphNotes())


def when_elsewhere(tell: Callable[[], object]) -> None:
    """Let `tell()` be called each time the program computes gradients that no session runs."""
    _when_elsewhere.append(tell)


def _gradients_elsewhere() -> None:
    for tell in _when_elsewhere:
        tell()


def trains(graph: tf.Graph) -> bool:
    """Return whether the program has computed or applied gradients in a graph until now."""
    return graph in _graphs


def wrap_gradients(module: ModuleType) -> None:
    """Wrap `gradients` and `gradients_v2` of TensorFlow's gradients_impl, to note the loss they derive."""
    for name in ("gradients", "gradients_v2"):
        setattr(module, name, _noting_loss(getattr(module, name)))


def wrap_tapes(module: ModuleType) -> None:
    """Wrap gradient tapes, to note the loss whose gradients they compute in a graph."""
    find: Callable[..., Any] = module.GradientTape.gradient

    @functools.wraps(find)
    def noting(self: Any, target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
        gradient = find(self, target, sources, *arguments, **named)
        _note_loss(target, sources, gradient)
        return gradient

    module.GradientTape.gradient = noting


def _noting_loss(gradients: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gradients)
    def noting(ys: Any, xs: Any, *arguments: Any, **named: Any) -> Any:
        gradient = gradients(ys, xs, *arguments, **named)
        _note_loss(ys, xs, gradient)
        return gradient

    return noting


def wrap_optimizers(module: ModuleType) -> None:
    """Wrap optimizers, to note the operations that apply gradients, their counters, and the minimized loss.

    The loss that the program passes to `minimize` counts, even if the optimizer computes the gradients of a
    multiple of it (a loss scale).
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
    """Wrap optimizers that wait for gradients of several workers, as `wrap_optimizers` does."""
    _wrap_apply_gradients(module.SyncReplicasOptimizer)


def _wrap_apply_gradients(optimizer: Any) -> None:
    apply: Callable[..., Any] = optimizer.apply_gradients

    @functools.wraps(apply)
    def noting(self: Any, grads_and_vars: Any, global_step: Any = None, *more: Any, **named: Any) -> Any:
        pairs = list(grads_and_vars)
        # An optimizer may apply gradients through another one; the program runs the outer one's operation.
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
def _note_loss(ys: Any, xs: Any, gradient: Any) -> None:
    import tensorflow as tf

    if tf.executing_eagerly():
        _gradients_elsewhere()
        return
    losses = ys if isinstance(ys, list | tuple) else [ys]
    graph = getattr(losses[0], "graph", None) if losses else None
    if graph is None:
        return
    if tf.compat.v1.executing_eagerly_outside_functions():
        _gradients_elsewhere()  # in a function that no session runs
    notes = notes_of(_outermost(graph))
    minimized = getattr(_inside, "loss", None)
    loss = losses[0] if minimized is None else minimized
    notes.targets.add(loss.op)
    notes.gradients |= {part.op for one in tf.nest.flatten(gradient) for part in tensors_of(one)}
    for x in tf.nest.flatten(xs):
        variable = variable_of(getattr(x, "op", None))
        if variable is not None:
            notes.losses.setdefault(variable, loss)


@guarded
def _note_update(operation: Any, counter: Any, pairs: Sequence[Any], replicas: int) -> None:
    import tensorflow as tf

    if tf.executing_eagerly() or operation is None:
        return
    operation = getattr(operation, "op", operation)
    graph = _outermost(operation.graph)
    certain = graph is operation.graph and operation._get_control_flow_context() is None
    applied = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    notes_of(graph).updates.append(Update(operation, counter, applied, int(replicas), certain))


def tensors_of(gradient: Any) -> list[tf.Tensor]:
    """Return the tensors of a gradient: itself, or the values of tf.IndexedSlices; [] for anything else."""
    tensor = getattr(gradient, "values", gradient)  # IndexedSlices have `op` and `consumers`, but no `ref`
    return [tensor] if hasattr(tensor, "op") and hasattr(tensor, "consumers") else []


def variable_of(operation: tf.Operation | None) -> tf.Operation | None:
    """Return the operation of the variable that `operation` is, reads or passes on; None if there is none.

    Example: for the ReadVariableOp of a variable, its VarHandleOp.
    """
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


def writes(nodes: Iterable[Any], handles: set[str], functions: Mapping[str, Any]) -> bool:
    """Return whether one of the nodes, or a function that it calls, writes a variable of `handles`.

    `nodes` are NodeDefs in an order in which each node comes after its inputs. `handles` are the names of the
    nodes with the variables' handles. `functions` is {name: FunctionDef}.
    """
    handles = set(handles)
    for node in nodes:
        places = [place for place, name in enumerate(node.input) if name.partition(":")[0] in handles]
        if not places:
            continue
        if node.op.startswith(WRITING):
            if 0 in places:
                return True
        elif node.op == "Identity":
            handles.add(node.name)
        for called in names_of_functions(node.attr):
            if called in functions:
                # The first input of a condition is the predicate, which its branches do not get.
                shift = 1 if node.op in {"If", "StatelessIf", "Case", "StatelessCase"} else 0
                arguments = functions[called].signature.input_arg
                names = {
                    arguments[place - shift].name for place in places if 0 <= place - shift < len(arguments)
                }
                if writes(functions[called].node_def, names, functions):
                    return True
    return False


def names_of_functions(attributes: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions that a node with these attributes (`NodeDef.attr`) calls."""
    names = [value.func.name for value in attributes.values() if value.func.name]
    return names + [one.name for value in attributes.values() for one in value.list.func]


def _outermost(graph: Any) -> tf.Graph:
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph


def place_of_loss(function: Any) -> int | None:
    """Return the index of the loss in the flat list of a function's results; None if no result is a loss.

    A loss is a float scalar whose gradients the program computes, or a mean or a sum of it. The first one
    counts.
    """
    import tensorflow as tf

    targets = notes_of(_outermost(function.graph)).targets
    for place, tensor in enumerate(tf.nest.flatten(function.structured_outputs)):
        if not (tf.is_tensor(tensor) and tensor.shape.rank == 0 and tensor.dtype.is_floating):
            continue
        operation = tensor.op
        while operation not in targets and operation.type in _SAME_LOSS:
            operation = operation.inputs[0].op
        if operation in targets:
            return place
    return None


def dependents_of(operation: tf.Operation) -> set[tf.Operation]:
    """Return the operation and all operations that depend on it, by data or by control."""
    return _closure(
        [operation],
        lambda each: [*(user for out in each.outputs for user in out.consumers()), *each._control_outputs],
    )


def dependencies_of(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Return the operations and all operations on which they depend, by data or by control."""
    return _closure(operations, lambda each: [*(tensor.op for tensor in each.inputs), *each.control_inputs])


def derived_from(operations: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Return the operations and all operations that compute with their values, directly or indirectly."""
    return _closure(operations, lambda each: [user for out in each.outputs for user in out.consumers()])


def _closure(
    first: Iterable[tf.Operation], near: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> set[tf.Operation]:
    closure = set(first)
    to_visit = list(closure)
    while to_visit:
        fresh = set(near(to_visit.pop())) - closure
        closure |= fresh
        to_visit.extend(fresh)
    return closure

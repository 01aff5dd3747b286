"""Exports what a user's program saved: the part of a checkpoint's graph from inputs to outputs.

The graph comes from the checkpoint's `.meta` file, as `tf.compat.v1.train.Saver` writes it. Only what leads
from the inputs to the outputs is exported, with new variables, so that neither the program's devices nor its
training matter.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.export import program_fingerprint, signature_name
from trainer.coordination.bounded_calls import runtime_config
from trainer.host.wording import first_of
from trainer.model.fingerprint import fingerprint_of
from trainer.model.saved_model import (
    BOUND,
    check_serving,
    finish_export,
    unfinished_export,
    write_saved_model,
)
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

_META = ".meta"
# The number of made-up examples on which the export is compared with the program's own graph.
_EXAMPLES = 3
_SHOWN = 6
_NUMBERED = re.compile(r".*-([0-9]{1,15})")
_OF_TRAINING = re.compile(
    r"(?:.*/)?(?:gradients|save|Adam|Momentum|GradientDescent|Adagrad)(?:_[0-9]+)?(?:/.*)?"
)
Values = Mapping[str, npt.NDArray[np.generic]]


def export_checkpoint(
    checkpoint: Path,
    directory: Path,
    card_fields: Mapping[str, Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> Path:
    """Export a program's checkpoint into the folder `directory`/export; return that folder.

    `checkpoint` is the path without a suffix. `inputs` and `outputs` are names of tensors, such as "x" or
    "x:0". `card_fields` are the card's fields about the run. An earlier export is replaced once the new
    export is checked. Raises OSError and TaskFailure: `input` if the checkpoint cannot be read,
    `configuration` if the names do not fit its graph, `program` if the check fails.
    """
    with tf.Graph().as_default() as graph:
        try:
            saver = v1.train.import_meta_graph(f"{checkpoint}{_META}", clear_devices=True)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise TaskFailure(INPUT, f"{checkpoint}{_META} cannot be read: {_in_a_line(error)}") from error
        variables = {each.op: each for each in v1.global_variables()}
    input_tensors, output_tensors = _tensors_of(graph, inputs, outputs)
    with v1.Session(graph=graph, config=runtime_config()) as session:
        try:
            saver.restore(session, str(checkpoint))
        except (AttributeError, ValueError, tf.errors.OpError) as error:
            raise TaskFailure(INPUT, f"{checkpoint} cannot be restored: {_in_a_line(error)}") from error
        operations, needed = _between(list(output_tensors.values()), list(input_tensors.values()), variables)
        if lacking := [each.name for each in operations if each.type == "Placeholder"]:
            names = ", ".join(f"{name}:0" for name in lacking)
            raise TaskFailure(CONFIGURATION, f"the outputs also depend on {names}: add these to the inputs")
        values = session.run({each.op.name: each for each in needed})
        request = {name: _example(tensor) for name, tensor in input_tensors.items()}
        feeds = {tensor: request[name] for name, tensor in input_tensors.items()}
        expected = session.run(output_tensors, feeds)
    with unfinished_export(directory) as folder:
        signature = _write(graph, operations, needed, values, input_tensors, output_tensors, folder)
        result = check_serving(folder, request, expected)
        result.require_variables(values)
        checked = {"examples": _EXAMPLES, "bound": BOUND, "largest_difference": result.largest_difference}
        numbered = _NUMBERED.fullmatch(checkpoint.name)
        step = {"global_step": int(numbered[1]) if numbered else 0}
        prints = {
            "fingerprint": program_fingerprint(checkpoint), "variables_fingerprint": fingerprint_of(values)
        }  # fmt: skip
        return finish_export(
            folder, directory, {**card_fields, **step, **prints, "checked": checked, **signature}
        )


def _tensors_of(
    graph: tf.Graph, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Return ({name in the signature: input tensor}, {name in the signature: output tensor}).

    Raises TaskFailure (`configuration`), which lists candidates, if `inputs` or `outputs` is empty, or if the
    graph has no tensor of such a name.
    """
    problems, pair = [], []
    for what, names in (("inputs", inputs), ("outputs", outputs)):
        tensors: dict[str, tf.Tensor] = {}
        for name in names:
            try:
                tensor = graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
            except (KeyError, ValueError):
                problems.append(f"its graph has no {name}")
                continue
            tensors[signature_name(tensor.name)] = tensor
        if not names:
            problems.append(f"the names of {what} are not given")
        pair.append(tensors)
    if problems:
        placeholders = [each.outputs[0] for each in graph.get_operations() if each.type == "Placeholder"]
        candidates = _candidates(graph, placeholders)
        raise TaskFailure(
            CONFIGURATION,
            f"{'; '.join(problems)}\nIts placeholders: {_in_words(placeholders)}\n"
            f"What it computes from them, the likely outputs first: {_in_words(candidates)}",
        )
    return pair[0], pair[1]


def _candidates(graph: tf.Graph, placeholders: Iterable[tf.Tensor]) -> list[tf.Tensor]:
    """Return the float tensors that depend on placeholders, and whose first size, the batch, is unknown.

    Gradients, optimizers and savers are left out. The likely outputs come first: they depend on few
    placeholders (a loss also depends on the labels), and come late in the graph.
    """
    needs = {tensor.op: frozenset({tensor.op}) for tensor in placeholders}
    candidates = []
    for operation in graph.get_operations():
        needed = frozenset[tf.Operation]().union(*(needs.get(each.op, ()) for each in operation.inputs))
        if operation in needs or not needed:
            continue
        needs[operation] = needed
        if _OF_TRAINING.fullmatch(operation.name):
            continue
        candidates += [
            tensor
            for tensor in operation.outputs
            if tensor.dtype.is_floating and tensor.shape.rank and tensor.shape[0] is None
        ]
    candidates.reverse()
    return sorted(candidates, key=lambda tensor: len(needs[tensor.op]))


def _in_words(tensors: Sequence[tf.Tensor]) -> str:
    each = [f"{tensor.name} ({tensor.dtype.name} {tensor.shape})" for tensor in tensors]
    return first_of(each, _SHOWN) if each else "none"


def _between(
    outputs: Sequence[tf.Tensor], inputs: Collection[tf.Tensor], variables: Mapping[tf.Operation, tf.Variable]
) -> tuple[list[tf.Operation], list[tf.Variable]]:
    """Return (operations, variables): what the outputs need, followed back as far as inputs and variables.

    The operations may include placeholders that are not among the inputs. `variables` is {operation:
    variable}.
    """
    ends = {tensor.ref() for tensor in inputs}
    between: dict[tf.Operation, None] = {}
    needed: dict[tf.Operation, tf.Variable] = {}
    to_visit = [tensor.op for tensor in outputs if tensor.ref() not in ends]
    while to_visit:
        operation = to_visit.pop()
        if operation in variables:
            needed[operation] = variables[operation]
        elif operation not in between:
            between[operation] = None
            to_visit += [tensor.op for tensor in operation.inputs if tensor.ref() not in ends]
            to_visit += operation.control_inputs
    return list(between), list(needed.values())


def _example(tensor: tf.Tensor) -> npt.NDArray[np.generic]:
    """Return a made-up value for an input: float 0 to 1 for three examples; unknown sizes are 1.

    If the input is no float, all numbers are 0. A float scalar, such as a dropout rate, is 1.
    """
    sizes = tensor.shape.as_list() if tensor.shape.rank else []
    shape = [_EXAMPLES, *(size or 1 for size in sizes[1:])] if sizes else []
    if not tensor.dtype.is_floating:
        return np.zeros(shape, tensor.dtype.as_numpy_dtype)
    numbers = np.random.default_rng(1).uniform(0, 1, shape) if sizes else np.ones(shape)
    return numbers.astype(tensor.dtype.as_numpy_dtype)


def _write(  # noqa: PLR0913, PLR0917 - a graph and its parts
    graph: tf.Graph,
    operations: Sequence[tf.Operation],
    variables: Sequence[tf.Variable],
    values: Values,
    inputs: Mapping[str, tf.Tensor],
    outputs: Mapping[str, tf.Tensor],
    folder: Path,
) -> dict[str, Any]:
    """Write the operations, with new variables and placeholders, as a SavedModel in `folder`.

    Return what `write_saved_model` returns. Raises TaskFailure (`configuration`) if the operations cannot be
    taken out of the graph.
    """
    whole, names = graph.as_graph_def(), {operation.name for operation in operations}
    part = tf.compat.v1.GraphDef(versions=whole.versions, library=whole.library)
    for node in whole.node:
        if node.name in names:
            copy = part.node.add()
            copy.CopyFrom(node)
            # This attribute would ask for the device of operations that are left out.
            copy.attr.pop("_class", None)
    with tf.Graph().as_default() as served:
        replaced = {}
        for variable in variables:
            value = values[variable.op.name]
            zeros = v1.zeros_initializer()
            variable_copy = v1.get_variable(
                variable.op.name, value.shape, value.dtype, zeros, use_resource=True
            )
            # A variable of TensorFlow 1 is its own value; a resource variable is read by operations.
            resource = variable.op.outputs[0].dtype == tf.resource
            replaced[variable.op.outputs[0].name] = (
                variable_copy.handle if resource else variable_copy.value()
            )
        fed = {name: v1.placeholder(tensor.dtype, tensor.shape, name) for name, tensor in inputs.items()}
        replaced |= {tensor.name: fed[name] for name, tensor in inputs.items()}
        used = {name for node in part.node for name in map(_tensor_name, node.input)}
        wanted = [tensor.name for tensor in outputs.values() if tensor.name not in replaced]
        mapped = {name: tensor for name, tensor in replaced.items() if name in used}
        try:
            imported = tf.import_graph_def(part, mapped, wanted, name="program") if part.node else []
        except ValueError as error:
            why = f"what leads to the outputs cannot be taken out of its graph: {_in_a_line(error)}"
            raise TaskFailure(CONFIGURATION, why) from error
        by_name = replaced | dict(zip(wanted, imported, strict=True))
        answered = {name: tf.identity(by_name[tensor.name]) for name, tensor in outputs.items()}
    return write_saved_model(served, values, fed, answered, folder)


def _tensor_name(text: str) -> str:
    """Return the name of the tensor that a node's input `text` means, such as "hidden:0" for "hidden"."""
    return text if ":" in text else f"{text}:0"


def _in_a_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

"""Exports a final model: a SavedModel that serves without this code, and a card that describes it.

The variables are written part by part, so that this process never holds a table. The export counts once
another process, which knows only TensorFlow (trainer/model/served.py), has loaded it and found the same
variables and the same outputs for test examples.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import OUT_OF_MEMORY, PROGRAM
from trainer.contract.export import CARD, EXPORT, SIGNATURE, VERSION
from trainer.contract.json_files import write_json
from trainer.host.error_lines import last_words
from trainer.host.memory import memory_bytes
from trainer.host.whole_files import file_sha256
from trainer.host.wording import first_of, readable
from trainer.model import served
from trainer.model.checkpoint_parts import MOST_BYTES, bytes_of, parts_of
from trainer.model.evaluation import EVALUATION_BATCH, FinalModel, values_for
from trainer.model.tables.checkpoint_rows import PartOfRows
from trainer.model.tables.lookup import Tables
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# How far an output may differ, relative to its largest number: eight times the last bit of a float32, because
# another process may add the same numbers in another order.
BOUND = 2.0**-20
# The most examples on which the outputs are compared.
MOST_EXAMPLES = EVALUATION_BATCH
FEATURES = "features"
_UNFINISHED = f"{EXPORT}.tempstate"
_NAMES_SHOWN = 3
Arrays = Mapping[str, npt.NDArray[np.generic]]
# Variable's name -> its value; parts of tables are read some rows at a time.
Values = Mapping[str, npt.NDArray[np.generic] | PartOfRows]
Tensors = Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class ServingCheck:
    """The results of a process without this code that served a SavedModel.

    `variables` is {name: SHA-256 of the variable}. `largest_difference` is how far the outputs differ from
    the expected outputs at most, relative to the largest number in the output.
    """

    variables: Mapping[str, str]
    largest_difference: float

    def require_variables(self, values: Values) -> None:
        """Raise TaskFailure (`program`) unless the SavedModel has exactly the variables in `values`."""
        expected = {name: _sha256_of(value) for name, value in values.items()}
        names = sorted(expected.keys() | self.variables.keys())
        if others := [name for name in names if expected.get(name) != self.variables.get(name)]:
            raise _not_exported(f"it has other values of {first_of(others, _NAMES_SHOWN)}")


class _RestoringSaver:
    """The saver for TensorFlow's SavedModel builder: the graph can restore its variables; none is written.

    `_write_variables` writes them.
    """

    def __init__(self) -> None:
        self._saver = v1.train.Saver(sharded=True, allow_empty=True)

    def save(self, *_arguments: object, **_options: object) -> None:
        """Write nothing: no session has the values."""

    def export_meta_graph(self, **options: object) -> object:
        """Return the MetaGraphDef of the graph."""
        return self._saver.export_meta_graph(**options)


def export_model(final: FinalModel, directory: Path, card_fields: Mapping[str, Any]) -> Path:
    """Export a final model into the folder `directory`/export; return that folder.

    `card_fields` are the card's fields about the run. An earlier export is replaced once the new export is
    checked. Raises TaskFailure (`program`) if the check fails, TaskFailure (`out_of_memory`) if this host
    could not load the model, and OSError; then nothing of the new export is left.
    """
    test = final.context.data.test
    features, values = test.read(0, min(len(test), MOST_EXAMPLES)).features, final.values()
    _require_memory(values)
    with unfinished_export(directory) as folder:
        signature = _write_model(final, features, values, folder)
        result = check_serving(folder, {FEATURES: features}, final.outputs(features))
        result.require_variables(values)
        checked = {"examples": len(features), "bound": BOUND, "largest_difference": result.largest_difference}
        card_fields = {**card_fields, "variables_fingerprint": final.fingerprint(), "checked": checked}
        return finish_export(folder, directory, {**card_fields, **signature})


@contextmanager
def unfinished_export(directory: Path) -> Iterator[Path]:
    """Return a context with a path in `directory` for a new export; its end removes what is still there.

    The path does not exist yet: the caller creates it as a folder, and `finish_export` moves it away.
    """
    with tempfile.TemporaryDirectory(prefix=f"{_UNFINISHED}.", dir=directory) as place:
        yield Path(place) / EXPORT


def finish_export(folder: Path, directory: Path, card_fields: Mapping[str, Any]) -> Path:
    """Write the card of a SavedModel, move both to `directory`/export, and return that folder.

    An earlier export is replaced. Raises OSError.
    """
    files = {
        path.relative_to(folder).as_posix(): {"sha256": file_sha256(path), "bytes": path.stat().st_size}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    card = {"version": VERSION, **card_fields, "tensorflow": tf.__version__, "files": files}
    write_json(folder / CARD, card, indent=4)
    target = directory / EXPORT
    if target.exists():
        shutil.rmtree(target)
    return folder.rename(target)


def write_saved_model(
    graph: tf.Graph, values: Values, inputs: Tensors, outputs: Tensors, folder: Path
) -> dict[str, Any]:
    """Write a graph and the values of its variables as a SavedModel in `folder`; return fields for the card.

    The fields are {"inputs": .., "outputs": ..}, each {name: {"dtype": .., "shape": ..}}. `inputs` and
    `outputs` are {name in the signature: tensor}.
    """
    signature = v1.saved_model.build_signature_def(
        _infos(inputs), _infos(outputs), v1.saved_model.signature_constants.PREDICT_METHOD_NAME
    )
    builder = v1.saved_model.Builder(str(folder))
    with graph.as_default():
        builder.add_meta_graph_and_variables(
            None,
            [v1.saved_model.SERVING],
            {SIGNATURE: signature},
            clear_devices=True,
            strip_default_attrs=True,
            saver=_RestoringSaver(),
        )
    builder.save()
    _write_variables(values, folder / "variables" / "variables")
    return {"inputs": _types_of(inputs), "outputs": _types_of(outputs)}


def check_serving(folder: Path, request: Arrays, expected: Arrays) -> ServingCheck:
    """Let a process without this code serve a SavedModel, and compare its outputs with `expected`.

    `request` is {input's name: value}, `expected` is {output's name: value}. Raises TaskFailure (`program`)
    if the model cannot be served, if an output does not have one value for each example, or if it differs.
    """
    count = next((len(value) for value in request.values() if value.ndim), None)
    if others := [name for name, value in expected.items() if value.shape[:1] != (count,)]:
        raise _not_exported(f"its output {others[0]} is not a value for each example")
    with tempfile.TemporaryDirectory() as place:
        request_file, answer_file = Path(place) / "request.npz", Path(place) / "answer.npz"
        np.savez(request_file, allow_pickle=False, **request)
        command = [sys.executable, "-I", served.__file__, str(folder), str(request_file), str(answer_file)]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            why = last_words((done.stdout + done.stderr).splitlines())
            raise _not_exported(f"it could not serve, exit code {done.returncode}: {why}")
        with np.load(answer_file) as content:
            answer = {part: _part(content, part) for part in ("outputs", "first", "variables")}
        hashes = {name: str(sha256) for name, sha256 in answer["variables"].items()}
    if {*answer["outputs"]} != {*expected}:
        raise _not_exported(f"it answers {', '.join(answer['outputs'])}, expected {', '.join(expected)}")
    differences = [
        difference
        for name, value in expected.items()
        # The first example alone must get the same output as among the others.
        for rows, other in ((value, answer["outputs"][name]), (value[:1], answer["first"][name]))
        for difference in [_difference(name, rows, other, value)]
    ]
    return ServingCheck(hashes, max(differences))


def _write_model(
    final: FinalModel, features: npt.NDArray[np.generic], values: Values, folder: Path
) -> dict[str, Any]:
    """Write the SavedModel, whose graph has only what serving needs.

    Return what `write_saved_model` returns.
    """
    model, context = final.model, final.context
    with tf.Graph().as_default() as graph:
        variables, tables = model.create_variables(context), Tables(model, context)
        fed = v1.placeholder(tf.as_dtype(features.dtype), [None, *features.shape[1:]], FEATURES)
        outputs = model.outputs(context, values_for(model, context, variables, tables, fed), fed)
    return write_saved_model(graph, values, {FEATURES: fed}, outputs, folder)


def _write_variables(values: Values, path: Path) -> None:
    """Write a checkpoint at `path` (without a suffix), with one part of it in memory at a time."""
    prefixes = []
    with tf.device("/device:CPU:0"):
        for number, part in enumerate(parts_of(_sizes_of(values), MOST_BYTES)):
            prefixes.append(f"{path}-{number}")
            tf.raw_ops.SaveV2(
                prefix=prefixes[-1],
                tensor_names=[piece.name for piece in part],
                shape_and_slices=[piece.specification for piece in part],
                tensors=[piece.of(values[piece.name]) for piece in part],
            )
        if prefixes:
            tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=prefixes, destination_prefix=str(path), delete_old_dirs=False
            )


def _require_memory(values: Values) -> None:
    """Raise TaskFailure (`out_of_memory`) if the variables need more memory than this host has.

    The check of an export loads all of them. If the host's memory is unknown, nothing is raised.
    """
    needed, has = bytes_of(_sizes_of(values)), memory_bytes()
    if has is not None and needed > has:
        what = f"its variables have {readable(needed)}, and this host has {readable(has)} of memory"
        why = "the check of an export loads all of them"
        raise TaskFailure(
            OUT_OF_MEMORY, f"nothing was exported: {what}; {why}: export the run's files on a larger one"
        )


def _sizes_of(values: Values) -> dict[str, tuple[tuple[int, ...], int]]:
    return {name: (tuple(value.shape), value.dtype.itemsize) for name, value in values.items()}


def _sha256_of(value: npt.NDArray[np.generic] | PartOfRows) -> str:
    return served.sha256_of(value, lambda begin, end: value[begin:end] if value.shape else value)


def _difference(
    name: str,
    expected: npt.NDArray[np.generic],
    actual: npt.NDArray[np.generic],
    whole: npt.NDArray[np.generic],
) -> float:
    """Return the largest difference of an output, divided by the largest absolute number in `whole`.

    Return 0.0 for equal outputs that are not floats. Raises TaskFailure (`program`) if the result exceeds
    BOUND, if outputs that are not floats differ, or if type or shape differ.
    """
    if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
        what = f"{actual.dtype} of shape {actual.shape}, expected {expected.dtype} of shape {expected.shape}"
        raise _not_exported(f"its output {name} is {what}")
    if not np.issubdtype(expected.dtype, np.floating):
        if not np.array_equal(expected, actual):
            raise _not_exported(f"its output {name} differs")
        return 0.0
    largest = np.max(np.abs(whole)) or 1.0
    difference = float(np.max(np.abs(np.subtract(expected, actual))) / largest)
    if not difference <= BOUND:
        what = f"by {difference:.3g} of its largest number, expected at most {BOUND:.3g}"
        raise _not_exported(f"its output {name} differs {what}")
    return difference


def _not_exported(why: str) -> TaskFailure:
    return TaskFailure(PROGRAM, f"the exported model was checked and removed, because {why}")


def _part(content: Mapping[str, Any], part: str) -> dict[str, npt.NDArray[np.generic]]:
    prefix = f"{part}/"
    return {name.removeprefix(prefix): content[name] for name in content if name.startswith(prefix)}


def _infos(tensors: Tensors) -> dict[str, Any]:
    """Return {name: TensorInfo}, as a signature describes each tensor."""
    return {
        name: v1.TensorInfo(
            name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
        )
        for name, tensor in tensors.items()
    }


def _types_of(tensors: Tensors) -> dict[str, Any]:
    """Return {name: {"dtype": .., "shape": ..}} of each tensor; unknown sizes and shapes are None.

    Example: {"x": {"dtype": "float32", "shape": [None, 784]}}
    """
    return {
        name: {
            "dtype": tensor.dtype.name,
            "shape": None if tensor.shape.rank is None else tensor.shape.as_list(),
        }
        for name, tensor in tensors.items()
    }

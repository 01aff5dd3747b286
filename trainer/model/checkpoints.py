"""Checkpoints on the chief's own disk, whole and readable without a shared file system.

Values are read from every ps and written by the chief alone; restoring reads the file here and assigns.
File names are TensorFlow's: `model.ckpt-<global step>.*` and the state file `checkpoint`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.coordination.ledger_parts import COUNTERS, GLOBAL_STEP, STOP_CODE
from trainer.model.fingerprint import ValueFingerprint, fingerprint_of
from trainer.model.pieces import AnyVariable, name_of, offsets_of, pieces_of, value_of
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# What each ps has of its own; checkpoints that are older hold it once, as those of fewer ps do.
_OF_ANOTHER_PS = re.compile(r"(beta[12]_power)_[0-9]+")
_INDEX_FILE = re.compile(r"model\.ckpt-(\d+)\.index")
Values = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint held: its path without ending, its global step, variable name -> value."""

    path: Path
    global_step: int
    values: Values


class SaveOperation:
    """The part of the chief's graph that writes a checkpoint named by the global step that is in it."""

    def __init__(
        self, directory: Path, variables: Sequence[AnyVariable], counters: tf.Variable, device: str | None
    ) -> None:
        """Add it to the default graph; `counters` is one of the variables.

        `device` is the CPU of the chief's own process. None where that process is a client of another's
        server, whose disk may be another: then the values are fetched and written by the client.
        """
        self._directory = directory
        self._values = {name_of(variable): _finite(variable, device) for variable in variables}
        self._write = self._fingerprint = None
        with tf.device(device):
            if device is not None:
                step = self._values[counters.op.name][GLOBAL_STEP]
                path = tf.strings.join([str(directory / "model.ckpt-"), tf.strings.as_string(step)])
                self._write = [path, _write(path, self._values)]
                self._fingerprint = ValueFingerprint(self._values)

    def run(self, session: tf.compat.v1.Session) -> tuple[Path, str]:
        """Write the files; their path without ending, and the fingerprint of the values in them.

        Raises tf.errors.OpError.
        """
        if self._write is not None and self._fingerprint is not None:
            (path, _), sums = session.run([self._write, self._fingerprint.fetches])
            return Path(path.decode()), self._fingerprint.of(sums)
        values = session.run(self._values)
        here = self._directory / f"model.ckpt-{values[COUNTERS][GLOBAL_STEP]}"
        _write(str(here), values)
        return here, fingerprint_of(values)


class RestoreOperation:
    """The operations that set variables to what a checkpoint holds of them."""

    def __init__(self, variables: Sequence[AnyVariable]) -> None:
        self._variables = {name_of(variable): variable for variable in variables}
        self._assignments = {
            piece.op.name: (placeholder, piece.assign(placeholder).op)
            for variable in variables
            for piece in pieces_of(variable)
            for placeholder in [v1.placeholder(piece.dtype, piece.shape)]
        }

    def run(self, session: tf.compat.v1.Session, checkpoint: Checkpoint) -> None:
        """Set every variable, the counters without the stop code of the run that saved them.

        Raises TaskFailure of class `configuration` where the checkpoint is of another model or cluster, and
        tf.errors.OpError.
        """
        values = self._values_in(checkpoint)
        if COUNTERS in values:
            values[COUNTERS] = values[COUNTERS].copy()
            values[COUNTERS][STOP_CODE] = 0
        feeds = {}
        for name, variable in self._variables.items():
            for piece, start in zip(pieces_of(variable), offsets_of(variable), strict=True):
                row = values[name].reshape(-1)[start : start + piece.shape.num_elements()]
                feeds[self._assignments[piece.op.name][0]] = row.reshape(piece.shape)
        session.run([assignment for _, assignment in self._assignments.values()], feeds)

    def _values_in(self, checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.generic]]:
        values, differences = {}, []
        for name, variable in self._variables.items():
            value = _held(checkpoint, name)
            needed = f"{variable.dtype.base_dtype.name} of shape {tuple(variable.shape)}"
            found = "nothing" if value is None else f"{value.dtype.name} of shape {value.shape}"
            if value is None or found != needed:
                differences.append(f"{found} for {name}, this run needs {needed}")
            else:
                values[name] = value
        if differences:
            holds = f"checkpoint {checkpoint.path} holds {'; '.join(differences)}"
            why = "it is of another model or number of workers"
            remedy = "take the settings it was saved with, or another run directory"
            raise TaskFailure(CONFIGURATION, f"{holds}: {why}; {remedy}")
        return values


class CheckpointFolder:
    """The checkpoints of a run, newest last, and the rule which are kept."""

    def __init__(self, directory: Path, keep: int) -> None:
        """Make the folder, and remove what a save that was cut short has left. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob("*.tempstate*"):
            leftover.unlink(missing_ok=True)
        self._keep = keep
        self.directory = directory

    def newest_good(self, complain: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that reads whole; `complain` hears of each that does not."""
        for path in reversed(checkpoint_paths(self.directory)):
            checkpoint, problem = read_checkpoint(path)
            if checkpoint is not None:
                return checkpoint
            complain(f"checkpoint {path} does not read whole and is passed over: {problem}")
            # It must not count as the newest when later saves have lower steps.
            for file in self.directory.glob(f"{path.name}.*"):
                file.rename(file.with_name(f"damaged-{file.name}"))
        return None

    def saved(self) -> None:
        """Write the state file and remove the checkpoints beyond those to keep. Raises OSError."""
        paths = checkpoint_paths(self.directory)
        kept = paths[-self._keep :]
        v1.train.update_checkpoint_state(
            str(self.directory),
            model_checkpoint_path=kept[-1].name,
            all_model_checkpoint_paths=[path.name for path in kept],
        )
        for path in paths[: -self._keep]:
            for file in self.directory.glob(f"{path.name}.*"):
                file.unlink(missing_ok=True)


def checkpoint_paths(directory: Path) -> list[Path]:
    """The checkpoints in a folder, newest last, each a path without ending. Raises OSError."""
    found = (_INDEX_FILE.fullmatch(file.name) for file in directory.iterdir())
    steps = sorted(int(match[1]) for match in found if match is not None)
    return [directory / f"model.ckpt-{step}" for step in steps]


def _held(checkpoint: Checkpoint, name: str) -> npt.NDArray[np.generic] | None:
    """What a checkpoint holds for a variable; None for nothing."""
    once = _OF_ANOTHER_PS.fullmatch(name)
    return checkpoint.values.get(name, checkpoint.values.get(once[1]) if once else None)


def _write(path: str | tf.Tensor, values: Mapping[str, tf.Tensor] | Values) -> tf.Operation:
    """Write the files: when the operation runs, or at once where no graph is being built."""
    names, tensors = list(values), list(values.values())
    return tf.raw_ops.SaveV2(
        prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
    )


def _finite(variable: AnyVariable, device: str | None) -> tf.Tensor:
    """Its value, checked on the device.

    The save fails where it is not finite, so that no checkpoint keeps a diverged model. It is read where it
    lies: a variable that is read on a CPU is placed there, also in a run that could have it on a GPU.
    """
    with tf.device(device):
        value = value_of(variable)
        if not value.dtype.is_floating:
            return value
        return tf.debugging.check_numerics(value, f"{name_of(variable)} is not finite")


def read_checkpoint(path: Path) -> tuple[Checkpoint | None, str]:
    """The checkpoint of this path without ending, or why it cannot be read."""
    try:
        reader = tf.train.load_checkpoint(str(path))
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        return Checkpoint(path, int(values[COUNTERS][GLOBAL_STEP]), values), ""
    except Exception as error:  # IndexError, ValueError, DataLossError: one for each damage
        return None, (str(error).splitlines() or [type(error).__name__])[0]

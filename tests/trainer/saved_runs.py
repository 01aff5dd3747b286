"""What a run of two ps and three workers leaves of a built-in model, with numbers drawn at random."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tests.trainer.row_files import write_tables
from trainer.contract.records import RecordWriter, TaskIdentity, events_file
from trainer.contract.settings import TrainingSettings
from trainer.coordination.ledger_parts import COUNTERS
from trainer.model.checkpoints import CheckpointFolder
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext
from trainer.model.pieces import name_of
from trainer.model.tables.checkpoint_files import SavedTable, manifest_of
from trainer.model.tables.lookup import Tables

PS, WORKERS, STEP = 2, 3, 40

Numbers = npt.NDArray[Any]


def drawn_values(settings: TrainingSettings) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
    """Name -> value of the model's variables, with the counters of the step; and those of its tables."""
    model, generator = REGISTRY[settings.model], np.random.default_rng(5)
    context = ModelContext(settings, model.load(settings, WORKERS), Devices(("",) * PS, ""))
    with tf.Graph().as_default():
        variables, tables = model.create_variables(context), Tables(model, context).variables
        shapes = [{name_of(each): each.shape.as_list() for each in its} for its in (variables, tables)]
    values, of_tables = (
        {name: np.asarray(generator.standard_normal(shape, np.float32)) for name, shape in its.items()}
        for its in shapes
    )
    return {**values, COUNTERS: np.array([STEP, 0, 20, 10, 10], np.int64)}, of_tables


def write_checkpoint(
    directory: Path, values: Mapping[str, Numbers], tables: Mapping[str, Numbers]
) -> tuple[Path, list[SavedTable]]:
    """Write them as a checkpoint in a run's directory, the tables as three ps would."""
    folder = CheckpointFolder(directory / "checkpoints", keep=1)
    saved = write_tables(folder.directory / f"model.ckpt-{STEP}", tables, 3)
    return folder.write(values, manifest_of(STEP, saved) if saved else "")[0], saved


def write_run(
    directory: Path, settings: TrainingSettings
) -> tuple[dict[str, Numbers], dict[str, Numbers], Path]:
    """Write the directory of a run that the evaluator reads; return its values, tables and checkpoint."""
    values, tables = drawn_values(settings)
    path, _ = write_checkpoint(directory, values, tables)
    chief = RecordWriter(events_file(directory, "worker", 0), TaskIdentity("run", "worker", 0))
    chief.write_started(settings.as_dict(), tf.__version__, address="")
    nonces = {
        f"{job}_nonces": {f"{job}{task}": 1 for task in range(tasks)}
        for job, tasks in (("ps", PS), ("worker", WORKERS))
    }
    chief.write("peers_ready", {**nonces, "waited_seconds": 0.0, "global_step": 0})
    return values, tables, path

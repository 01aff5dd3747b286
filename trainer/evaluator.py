"""`python -m trainer.evaluator RUN_DIRECTORY` evaluates the final model of a run, independently of its tasks.

It runs on the chief's host once the run has ended, because the chief's records, with the settings, and its
last checkpoint are there. It needs no cluster, server, port or GPU. It appends its results to records of its
own, events/evaluator0.jsonl (docs/contracts.md).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.contract.exit_codes import CONFIGURATION, FINISHED, INPUT, USAGE
from trainer.contract.records import (
    EVALUATOR,
    EVALUATOR_NAME,
    Record,
    RecordWriter,
    TaskIdentity,
    events_file,
    read_records,
)
from trainer.contract.rules import SettingsError
from trainer.contract.settings import TrainingSettings
from trainer.process.console import say
from trainer.process.ending import with_ending_file
from trainer.process.failure import TaskFailure, with_failure_record
from trainer.process.loading import loading_tensorflow

if TYPE_CHECKING:
    from trainer.model.checkpoints import Checkpoint

USAGE_TEXT = """\
Usage: python -m trainer.evaluator RUN_DIRECTORY

Evaluates the checkpoint that the chief of a run of a built-in model saved last, on the test examples.
RUN_DIRECTORY is the chief's --run_directory, with its events/worker0.jsonl and checkpoints/.
"""


def main(arguments: Sequence[str]) -> int:
    """Evaluate the run in the given directory; return the exit code."""
    if list(arguments) in (["--help"], ["-h"]):
        say(USAGE_TEXT)
        return FINISHED
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        given = " ".join(arguments) or "nothing"
        sys.stderr.write(f"RUN_DIRECTORY is {given}; expected one directory.\n{USAGE_TEXT}")
        return USAGE
    # Set before TensorFlow is loaded, because this process must not take a GPU's memory from others.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    directory = Path(arguments[0]).absolute()
    chief = read_records(events_file(directory, "worker", 0))
    identity = TaskIdentity(directory.name, EVALUATOR, 0)
    if started := _last(chief[0], "started"):
        # Run and plan are the chief's; the release is that of the evaluating code, if it is known.
        release = os.environ.get("PSFLEET_RELEASE") or started.release
        identity = TaskIdentity(started.run_id, EVALUATOR, 0, started.plan_hash, release)
    try:
        records = RecordWriter(events_file(directory, EVALUATOR, 0), identity)
    except OSError as error:
        say(f"{EVALUATOR_NAME} failed (input): no records can be written: {error.filename}: {error.strerror}")
        return INPUT

    def work() -> int:
        return with_failure_record(lambda: _evaluate(directory, chief, records), records, EVALUATOR_NAME)

    return with_ending_file(directory, EVALUATOR_NAME, work)


def _evaluate(directory: Path, chief: tuple[Sequence[Record], Sequence[str]], records: RecordWriter) -> int:
    began = time.monotonic()
    chief_records, complaints = chief
    settings = _settings(directory, chief_records, complaints)
    say(f"Evaluating the final model of {directory} ({settings.model}) on the CPU, without the run's tasks.")

    with loading_tensorflow():
        import tensorflow as tf

    from trainer.model.evaluation import evaluate_checkpoint
    from trainer.model.fingerprint import fingerprint_of
    from trainer.model.models import REGISTRY

    records.write_started(settings.as_dict(), tf.__version__, address="")
    checkpoint = _checkpoint(directory, chief_records)
    step = {"global_step": checkpoint.global_step}
    records.write("restored", {**step, "checkpoint": str(checkpoint.path)})
    fingerprint = fingerprint_of(checkpoint.values)
    say(f"Read {checkpoint.path}: global step {checkpoint.global_step}, fingerprint {fingerprint}.")
    peers = _last(chief_records, "peers_ready")
    ps = len(peers.integers("ps_nonces")) if peers else 0
    metrics, examples = evaluate_checkpoint(checkpoint, settings, ps)
    judged = {"metrics": metrics, "examples": examples, "fingerprint": fingerprint}
    records.write("evaluated", {**step, **judged})
    for line in REGISTRY[settings.model].summary_lines(metrics):
        say(line)
    records.write("finished", {"reason": "evaluated"})
    say(f"Evaluated {examples} test examples in {time.monotonic() - began:.1f} s.")
    return FINISHED


def _settings(directory: Path, chief: Sequence[Record], complaints: Sequence[str]) -> TrainingSettings:
    file = events_file(directory, "worker", 0)
    started = _last(chief, "started")
    if started is None:
        why = f" ({'; '.join(complaints)})" if complaints else ""
        expected = "expected a `started` record of the run's chief"
        raise TaskFailure(INPUT, f"{file} does not say what was trained{why}; {expected}")
    if "program" in started.fields:
        whose = f"of a user's program ({started.text('program')}), and its model is not known here"
        raise TaskFailure(CONFIGURATION, f"{file} is {whose}; expected a run of a built-in model")
    settings = started.fields["settings"]
    try:
        return TrainingSettings.from_mapping(settings if isinstance(settings, dict) else {})
    except SettingsError as error:
        raise TaskFailure(CONFIGURATION, f"the settings in {file} cannot be used: {error}") from error


def _checkpoint(directory: Path, chief: Sequence[Record]) -> Checkpoint:
    """Return the checkpoint that the chief recorded last; if it recorded none, the newest in the folder."""
    from trainer.model.checkpoints import checkpoint_paths, read_checkpoint

    folder = directory / "checkpoints"
    paths = checkpoint_paths(folder) if folder.is_dir() else []
    saved = _last(chief, "checkpointed")
    if saved is None and not paths:
        raise TaskFailure(INPUT, f"there is no checkpoint in {folder}, and the chief recorded none")
    # Only the name counts, because the folder may be a copy of the chief's.
    path = paths[-1] if saved is None else folder / Path(saved.text("path")).name
    checkpoint, problem = read_checkpoint(path) if path in paths else (None, "it is not there")
    if checkpoint is None:
        others = ", ".join(other.name for other in paths if other != path) or "none"
        which = f"the last checkpoint, {path}, cannot be read: {problem}"
        raise TaskFailure(INPUT, f"{which}; others here: {others}")
    return checkpoint


def _last(records: Sequence[Record], event: str) -> Record | None:
    return next((record for record in reversed(records) if record.event == event), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m trainer.evaluator RUN_DIRECTORY` evaluates the model of a run, independently of its tasks.

The evaluator runs on the chief's host once the run has ended, because the chief's records, with the settings,
and the chief's last checkpoint are there. It needs no cluster, server, port or GPU. It appends its results to
its own records, events/evaluator0.jsonl (docs/contracts.md). With --export it exports the model instead, and
writes nothing else: a run that was collected stays unchanged. With --follow it is a child of the chief, and
evaluates checkpoints while the run goes on (trainer/task/evaluations.py).
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.contract.exit_codes import CONFIGURATION, FINISHED, INPUT, USAGE
from trainer.contract.export import PROGRAM
from trainer.contract.json_files import finite
from trainer.contract.model_files import model_name
from trainer.contract.records import Record, RecordWriter, TaskIdentity, events_file, read_records
from trainer.contract.rules import SettingsError
from trainer.contract.settings import TrainingSettings
from trainer.contract.task_names import EVALUATOR, EVALUATOR_NAME
from trainer.process.console import say
from trainer.process.ending import with_ending_file
from trainer.process.failure import TaskFailure, with_failure_record
from trainer.process.loading import loading_tensorflow

if TYPE_CHECKING:
    from trainer.model.checkpoints import Checkpoint
    from trainer.model.evaluation import FinalModel

EXPORTS, FOLLOWS = "--export", "--follow"
_TRIES = 3
_LOWEST_PRIORITY = 19
USAGE_TEXT = """\
Usage: python -m trainer.evaluator [OPTIONS] RUN_DIRECTORY

OPTIONS are none, --follow, --export, or --export --model=PATH --inputs=NAMES --outputs=NAMES.

Evaluates the checkpoint that the chief of a run of a built-in model saved last, on the test examples.
RUN_DIRECTORY is the chief's --run_directory, with its events/worker0.jsonl and checkpoints/.
With --export, the model is exported into RUN_DIRECTORY/export, a SavedModel that serves without psfleet.
Of a user's program, PATH is a checkpoint without its suffix, in RUN_DIRECTORY or absolute, with a .meta file
beside it, and NAMES are tensors of its graph, such as --inputs=x,keep_prob --outputs=softmax:0.
With --follow, the newest checkpoint is evaluated at each line of standard input, until that ends; each
answer is a line with a JSON object.
"""


def main(arguments: Sequence[str]) -> int:
    """Evaluate, follow or export the run that the arguments name (USAGE_TEXT); return the exit code.

    Return USAGE (64) for arguments that cannot be used, and INPUT (66) if no records can be written.
    """
    if list(arguments) in (["--help"], ["-h"]):
        say(USAGE_TEXT)
        return FINISHED
    options, places = dict(option.partition("=")[::2] for option in arguments[:-1]), arguments[-1:]
    if not _is_usable(options) or not places or not Path(places[0]).is_dir():
        typed = " ".join(arguments) or "nothing"
        sys.stderr.write(f"RUN_DIRECTORY is {typed}; expected one directory.\n{USAGE_TEXT}")
        return USAGE
    # Set before TensorFlow is loaded, because this process must not take a GPU's memory from others.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    directory = Path(places[0]).absolute()
    chief = read_records(events_file(directory, "worker", 0))
    release = os.environ.get("PSFLEET_RELEASE", "")
    identity = TaskIdentity(directory.name, EVALUATOR, 0, release=release)
    if started := _last(chief[0], "started"):
        # Run and plan are the chief's; the release is the release of the evaluating code, if it is known.
        release = release or started.release
        identity = TaskIdentity(started.run_id, EVALUATOR, 0, started.plan_hash, release)
    if EXPORTS in options:
        return with_failure_record(
            lambda: _export(directory, chief, identity, options), RecordWriter(None, identity), EVALUATOR_NAME
        )
    try:
        records = RecordWriter(events_file(directory, EVALUATOR, 0), identity)
    except OSError as error:
        say(f"{EVALUATOR_NAME} failed (input): no records can be written: {error.filename}: {error.strerror}")
        return INPUT

    if options:
        return with_failure_record(lambda: _follow(directory, chief, records), records, EVALUATOR_NAME)

    def work() -> int:
        return with_failure_record(lambda: _evaluate(directory, chief, records), records, EVALUATOR_NAME)

    return with_ending_file(directory, EVALUATOR_NAME, work)


def _is_usable(options: Mapping[str, str]) -> bool:
    """Return whether these options, {name: value}, may be used together; a value is "" if none is typed.

    True for none, for --follow alone, for --export alone, and for --export with --model and, optionally,
    --inputs and --outputs; else False.
    """
    if options == {FOLLOWS: ""}:
        return True
    of_program = {"--model", "--inputs", "--outputs"}
    if not options.keys() <= {EXPORTS, *of_program} or options.get(EXPORTS):
        return False
    return not options or (EXPORTS in options and bool(options.get("--model")) == (len(options) > 1))


def _evaluate(directory: Path, chief: tuple[Sequence[Record], Sequence[str]], records: RecordWriter) -> int:
    began = time.monotonic()
    settings = _settings(directory, *chief)
    say(f"Evaluating the final model of {directory} ({settings.model}) on the CPU, without the run's tasks.")

    with loading_tensorflow():
        import tensorflow as tf

    records.write_started(settings.as_dict(), tf.__version__, address="")
    checkpoint = _checkpoint(directory, chief[0])
    step = {"global_step": checkpoint.global_step}
    records.write("restored", {**step, "checkpoint": str(checkpoint.path)})
    final, evaluation = _evaluate_checkpoint(checkpoint, settings, chief[0])
    records.write("evaluated", {**step, **evaluation, "sample_outputs": final.sample()})
    for line in final.model.summary_lines(evaluation["metrics"]):
        say(line)
    records.write("finished", {"reason": "evaluated"})
    say(f"Evaluated {evaluation['examples']} test examples in {time.monotonic() - began:.1f} s.")
    return FINISHED


def _follow(directory: Path, chief: tuple[Sequence[Record], Sequence[str]], records: RecordWriter) -> int:
    """Evaluate the newest checkpoint at each line of standard input, until the input ends; return FINISHED.

    Each answer is a line of JSON on standard output: {"global_step": .., "metrics": ..}. `chief` is (records,
    complaints) of `read_records` for the chief's records.
    """
    # What this process prints for people goes to standard error, which is the chief's.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(OSError):  # a sandbox may forbid to change the priority
        os.nice(_LOWEST_PRIORITY)
    settings = replace(_settings(directory, *chief), threads=1)
    with loading_tensorflow():
        import tensorflow as tf

        from trainer.task.summaries import Summaries, test_scalars

    records.write_started(settings.as_dict(), tf.__version__, address="")
    summaries = Summaries(directory, EVALUATOR_NAME, tf.Graph(), settings.summary_steps)
    model: FinalModel | None = None
    for _ in sys.stdin:
        checkpoint = _newest(directory)
        model = _with_values(model, checkpoint, settings, directory)
        step, metrics = checkpoint.global_step, model.results()
        evaluation = _evaluation_fields(checkpoint, metrics, model)
        records.write("evaluated", {"global_step": step, **evaluation})
        summaries.write(step, test_scalars(metrics))
        answers.write(json.dumps(finite({"global_step": step, "metrics": metrics})) + "\n")
    records.write("finished", {"reason": "run over"})
    return FINISHED


def _with_values(
    model: FinalModel | None, checkpoint: Checkpoint, settings: TrainingSettings, directory: Path
) -> FinalModel:
    """Return `model` with the values of a checkpoint.

    If `model` is None, build a new model from the chief's records in `directory`, which takes long.
    """
    if model is None:
        return _model_of(checkpoint, settings, read_records(events_file(directory, "worker", 0))[0])
    model.restore(checkpoint)
    return model


def _evaluate_checkpoint(
    checkpoint: Checkpoint, settings: TrainingSettings, chief: Sequence[Record]
) -> tuple[FinalModel, dict[str, Any]]:
    """Return (the model of a checkpoint, the fields of `_evaluation_fields`); also print a line."""
    final = _model_of(checkpoint, settings, chief)
    evaluation = _evaluation_fields(checkpoint, final.metrics(), final)
    which = f"global step {checkpoint.global_step}, fingerprint {evaluation['fingerprint']}"
    say(f"Read {checkpoint.path}: {which}.")
    return final, evaluation


def _model_of(checkpoint: Checkpoint, settings: TrainingSettings, chief: Sequence[Record]) -> FinalModel:
    from trainer.model.evaluation import FinalModel

    peers = _last(chief, "peers_ready")
    return FinalModel(checkpoint, settings, len(peers.integers("ps_nonces")) if peers else 0)


def _evaluation_fields(
    checkpoint: Checkpoint, metrics: Mapping[str, float], model: FinalModel
) -> dict[str, Any]:
    """Return {"metrics": `metrics`, "examples": number of test examples, "fingerprint": the checkpoint's}."""
    examples = len(model.context.data.test)
    return {"metrics": metrics, "examples": examples, "fingerprint": checkpoint.fingerprint}


def _export(
    directory: Path,
    chief: tuple[Sequence[Record], Sequence[str]],
    identity: TaskIdentity,
    options: Mapping[str, str],
) -> int:
    described: dict[str, Any] = {"run_id": identity.run_id, "release": identity.release}
    try:
        if options.get("--model"):
            folder = _export_program(directory, described, options)
        else:
            folder = _export_model(directory, described, chief)
    except OSError as error:
        raise TaskFailure(INPUT, f"nothing was exported: {error.filename}: {error.strerror}") from error
    say(f"Exported to {folder}: a process without psfleet has served it.")
    return FINISHED


def _export_model(
    directory: Path, described: Mapping[str, Any], chief: tuple[Sequence[Record], Sequence[str]]
) -> Path:
    settings = _settings(directory, *chief)
    say(f"Exporting the final model of {directory} ({settings.model}) on the CPU, without the run's tasks.")
    with loading_tensorflow():
        from trainer.model.saved_model import export_model

    checkpoint = _checkpoint(directory, chief[0])
    final, evaluation = _evaluate_checkpoint(checkpoint, settings, chief[0])
    step = {"global_step": checkpoint.global_step}
    _require_same_model(chief[0], evaluation["metrics"], **step, examples=evaluation["examples"])
    of_model = {"model": model_name(settings.model), **step, "checkpoint": checkpoint.path.name}
    return export_model(final, directory, {**described, **of_model, **evaluation})


def _export_program(directory: Path, described: Mapping[str, Any], options: Mapping[str, str]) -> Path:
    path = directory / options["--model"]
    say(f"Exporting {path}, which a program saved, on the CPU.")
    with loading_tensorflow():
        from trainer.model.meta_graphs import export_checkpoint

    inputs, outputs = (
        [name for name in options.get(which, "").split(",") if name] for which in ("--inputs", "--outputs")
    )
    of_model = {"model": PROGRAM, "checkpoint": options["--model"], "metrics": {}, "examples": 0}
    return export_checkpoint(path, directory, {**described, **of_model}, inputs, outputs)


def _require_same_model(
    chief: Sequence[Record], metrics: Mapping[str, float], *, global_step: int, examples: int
) -> None:
    """Raise TaskFailure (`configuration`) if a metric of the chief at this step is another in `metrics`.

    A difference of 0.1%, or of one in `examples`, the number of test examples, counts as rounding. If the
    chief did not evaluate at this step, do nothing. This release may compute the model in another way than
    the run's release.
    """
    evaluations = [record for record in chief if record.event == "evaluated"]
    evaluation = next(
        (record for record in reversed(evaluations) if record.integer("global_step") == global_step), None
    )
    by_chief = evaluation.fields["metrics"] if evaluation else {}
    for name, value in by_chief.items() if isinstance(by_chief, Mapping) else ():
        own = metrics.get(name, math.nan)
        if isinstance(value, int | float) and not math.isclose(
            value, own, rel_tol=1e-3, abs_tol=1.01 / examples
        ):
            what = f"{name} is {own:.6g} here, and the chief of the run found {value:.6g} at that step"
            raise TaskFailure(
                CONFIGURATION, f"{what}: this release computes another model; nothing was exported"
            )


def _settings(directory: Path, chief: Sequence[Record], complaints: Sequence[str]) -> TrainingSettings:
    file = events_file(directory, "worker", 0)
    started = _last(chief, "started")
    if started is None:
        why = f" ({'; '.join(complaints)})" if complaints else ""
        expected = "expected a `started` record of the run's chief"
        raise TaskFailure(INPUT, f"{file} does not say what was trained{why}; {expected}")
    if "program" in started.fields:
        what = f"of a user's program ({started.text('program')}), and its model is not known here"
        raise TaskFailure(CONFIGURATION, f"{file} is {what}; expected a run of a built-in model")
    settings = started.fields["settings"]
    try:
        return TrainingSettings.from_mapping(settings if isinstance(settings, dict) else {})
    except SettingsError as error:
        raise TaskFailure(CONFIGURATION, f"the settings in {file} cannot be used: {error}") from error


def _checkpoint(directory: Path, chief: Sequence[Record]) -> Checkpoint:
    """Return the checkpoint that the chief recorded last; if it recorded none, the newest in the folder.

    The folder is `directory`/checkpoints. Raises TaskFailure (`input`) if that one is missing or damaged,
    even if others are good.
    """
    from trainer.model.checkpoints import checkpoint_paths

    folder = directory / "checkpoints"
    paths = checkpoint_paths(folder) if folder.is_dir() else []
    saved = _last(chief, "checkpointed")
    if saved is None and not paths:
        raise TaskFailure(INPUT, f"there is no checkpoint in {folder}, and the chief recorded none")
    # Only the name counts, because the folder may be a copy of the chief's.
    path = paths[-1] if saved is None else folder / Path(saved.text("path")).name
    checkpoint, problem = _whole(path) if path in paths else (None, "it is not there")
    if checkpoint is None:
        others = ", ".join(other.name for other in paths if other != path) or "none"
        which = f"the last checkpoint, {path}, cannot be read: {problem}"
        raise TaskFailure(INPUT, f"{which}; others here: {others}")
    return checkpoint


def _newest(directory: Path) -> Checkpoint:
    """Return the newest checkpoint in `directory`/checkpoints whose files are complete.

    The chief may remove a checkpoint while it is read, so all are tried three times. Raises TaskFailure
    (`input`) if no checkpoint can be read.
    """
    from trainer.model.checkpoints import checkpoint_paths

    folder, problem = directory / "checkpoints", "there is none"
    for _ in range(_TRIES):
        for path in reversed(checkpoint_paths(folder)):
            checkpoint, problem = _whole(path)
            if checkpoint is not None:
                return checkpoint
    raise TaskFailure(INPUT, f"no checkpoint in {folder} can be read: {problem}")


def _whole(path: Path) -> tuple[Checkpoint | None, str]:
    """Return (the checkpoint at `path`, ""), or (None, why it cannot be used) if it is damaged or incomplete.

    The files of the checkpoint's tables must be there, as the manifest lists them. The fingerprint's sums of
    the tables are computed from these files.
    """
    from trainer.model.checkpoints import read_checkpoint
    from trainer.model.fingerprint import with_computed_sums
    from trainer.model.tables.checkpoint_files import problems_beside

    checkpoint, problem = read_checkpoint(path)
    if checkpoint is None:
        return None, problem
    try:
        problem = next(problems_beside(path, checkpoint.tables), "")
        if not problem:
            return replace(checkpoint, tables=with_computed_sums(path, checkpoint.tables)), ""
    except (OSError, ValueError) as error:  # the chief has just removed them
        problem = str(error)
    return None, problem


def _last(records: Sequence[Record], event: str) -> Record | None:
    return next((record for record in reversed(records) if record.event == event), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

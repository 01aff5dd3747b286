"""Train the references of psfleet/evidence/learning_pace.py anew (`make references`), all or some models'."""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from psfleet.evidence.learning_pace import FOLDER, SEEDS, curve_of
from psfleet.evidence.reading import read_run
from tests.psfleet.evidence.run_folders import train
from trainer.contract.settings import TrainingSettings, flags_of

# The examples that each run learns from: by then the loss has fallen far.
_EXAMPLES = {"linear": 40_000, "mnist_mlp": 200_000, "cnn": 60_000}
_BATCH = TrainingSettings.batch_size
# Replication, workers, and the examples of each worker's step in default batches.
_KINDS = (
    *(("local", 1, batches) for batches in (1, 2, 3, 4, 8)),
    *(("async", workers, 1) for workers in (2, 3, 4)),
    ("sync", 2, 1),
)


def main(models: list[str]) -> None:
    """Train all, and write a file for each model when its runs are there."""
    for model in models or _EXAMPLES:
        runs, begun = [], time.monotonic()
        for replication, workers, batches in _KINDS:
            seeds = range(1, SEEDS + 1)
            runs += [_run(model, replication, workers, batches, seed) for seed in seeds]
            spent = f"{time.monotonic() - begun:.0f} s"
            print(f"{model}: {replication}, {workers} x {batches * _BATCH} examples ({spent})", flush=True)
        lines = ",\n".join(json.dumps(run) for run in runs)
        (FOLDER / f"{model}.json").write_text(f'{{"runs": [\n{lines}\n]}}\n', encoding="utf-8")


def _run(model: str, replication: str, workers: int, batches: int, seed: int) -> dict[str, object]:
    """Train once."""
    batch = batches * _BATCH * (workers if replication == "sync" else 1)
    asked = {
        "model": model,
        "replication": replication,
        "batch_size": batches * _BATCH,
        "steps": _EXAMPLES[model] // batch,
        "seed": seed,
    }
    with tempfile.TemporaryDirectory() as folder:
        run = read_run(train(Path(folder), workers, flags_of(asked)))
    curve = [(round(examples), float(f"{loss:.4g}")) for examples, loss in curve_of(run, batch)]
    return {"replication": replication, "workers": workers, "batch": batch, "seed": seed, "curve": curve}


if __name__ == "__main__":
    # What TensorFlow tells of the machine is of no matter here.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(sys.argv[1:])

"""Programs of tf.estimator, which TensorFlow has up to 2.15, are proven by what psfleet sees of them."""

import re
from pathlib import Path

import pytest

from plugins.module_utils.saved_places import SavedPlace, noted_places
from tests.psfleet.evidence.program_folders import run_program
from tests.psfleet.evidence.run_folders import checks, records, verdict_of
from tests.trainer.program.tensorflows import with_estimator

SCRIPTS = Path(__file__).parents[3] / "trainer" / "program" / "tensorflow1"
SEEN = {"same_parameter_servers", "workers_met", "parameters_shared", "fair_shares", "loss_fell"}


@with_estimator
@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "ps", "arguments"),
    [("estimator", 1, []), ("estimator", 1, ["--tpu_estimator"]), ("canned_estimator", 2, [])],
)
def test_a_program_of_tf_estimator_is_proven(
    tmp_path: Path, script: str, ps: int, arguments: list[str]
) -> None:
    program, jobs = SCRIPTS / f"{script}.py", {"chief": 1, "ps": ps, "worker": 1}
    run = run_program(tmp_path / "run", *arguments, program=program, tensorflow1=True, **jobs)
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", (verdict.failing, verdict.not_shown)
    assert checks(verdict, True) >= SEEN
    logs = {log.stem: log.read_text() for log in (run / "logs").iterdir()}
    for wrong in ("psfleet, which looks", "stays as it is", "Traceback"):
        assert wrong not in "".join(logs.values())
    finished = [record for task in ("chief0", "worker0") for record in records(run, task)[-1:]]
    assert [(record["event"], record["last_step"]) for record in finished] == [("finished", 600)] * 2
    assert max(record["global_step"] for record in finished) >= 600
    # The chief saves, evaluates and exports on its own disk.
    (exported,) = re.findall(r"^exported (.*)$", logs["chief0"], re.MULTILINE)
    chief = tmp_path / "run" / "hosts" / "chief0"
    assert noted_places((chief / "saves" / "chief0.jsonl").read_text()) == [
        SavedPlace("checkpoints", "summaries"),
        SavedPlace("checkpoints", "checkpoint"),
        SavedPlace("checkpoints/eval", "summaries"),
        SavedPlace(exported, "SavedModel"),
    ]
    assert (chief / exported / "saved_model.pb").exists()
    assert list((chief / "checkpoints").glob("model.ckpt-*.data-00000-of-00001"))
    # Each task of a TPUEstimator writes a summary of examples per second.
    notes = list((tmp_path / "run" / "hosts" / "worker0" / "saves").glob("*"))
    of_worker = [place for note in notes for place in noted_places(note.read_text())]
    assert of_worker == ([SavedPlace("checkpoints", "summaries")] if arguments else [])
    (accuracy,) = re.findall(r"^accuracy: (.*)$", logs["chief0"], re.MULTILINE)
    assert float(accuracy) > 0.8

"""Why tasks failed, if no task took a step: each reason once, with the names of its tasks."""

import json
from pathlib import Path

from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.program_folders import BYTES, ending
from tests.psfleet.evidence.run_folders import records, rewrite, verdict_of
from tests.psfleet.report.made_runs import make_run
from tests.repository import ROOT
from trainer.host.error_lines import exception_in

PRINTED = ROOT / "tests" / "trainer" / "host" / "printed" / "missing_file_session.txt"


def test_no_worker_found_its_data(tmp_path: Path) -> None:
    """TensorFlow printed 60 lines for each, and the ps ended with their reason."""
    run = tmp_path / "run"
    make_run(run, windows=0)
    error = exception_in(PRINTED.read_text()).removeprefix("tensorflow.python.framework.errors_impl.")
    for name, whose in {"worker0": "", "worker1": "", "ps0": "worker0: "}.items():
        told = [record for record in records(run, name) if record["event"] == "started"]
        end = {"event": "failed", "class": "program", "reason": f"{whose}{error}"}
        rewrite(run, name, [*told, told[-1] | end])
    failed = "worker0, worker1 failed, {}: NotFoundError: /data/mnist/train.csv; No such file or directory"
    assert verdict_of(run).reasons == (failed.format("(program)"),)
    endings = [ending(name, 70, failed=True, **BYTES) for name in ("ps0", "worker0", "worker1")]
    (run / "tasks.json").write_text(json.dumps(endings))
    verdict = verdict_of(run)
    assert (verdict.headline, verdict.reasons) == (
        "NOT PROVEN: no task took a step",
        (failed.format("exit code 70"),),
    )
    lines = [line.strip() for line, _ in as_lines(verdict, run) if line]
    assert lines == [f"{verdict.headline} (run run)", *verdict.reasons, f"run folder  {run}"]

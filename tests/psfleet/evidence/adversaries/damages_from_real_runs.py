"""Damages of a run's folder that take something from a real run: another run's folder, or this run's hosts.

Each function gets the folder and all real runs. folder_damages.py has the damages that need only the folder.
"""

import shutil
import tempfile
from pathlib import Path

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.run_folders import edit, evaluate, events, records, rewrite


def take_the_records_of_another_run(run: Path, runs: RealRuns) -> None:
    shutil.copy(events(runs.of("noisy"), "worker1"), events(run, "worker1"))
    edit(run, "worker1", "", run_id="20260101-another")


def take_the_records_of_another_run_as_its_own(run: Path, runs: RealRuns) -> None:
    """Run id and plan are written over, so that they seem to be of this run."""
    plan_hash = records(run, "worker1")[0]["plan_hash"]
    shutil.copy(events(runs.of("noisy"), "worker1"), events(run, "worker1"))
    edit(run, "worker1", "", plan_hash=plan_hash)


def keep_an_older_file(run: Path, runs: RealRuns) -> None:
    """An earlier run had a third worker."""
    shutil.copy(events(runs.of("sync"), "worker2"), events(run, "worker2"))
    edit(run, "worker2", "", run_id="20260101-another")


def keep_older_records(run: Path, runs: RealRuns) -> None:
    """The file of worker 1 was not empty when the run began."""
    older = [record | {"run_id": "20260101-another"} for record in records(runs.of("noisy"), "worker1")]
    rewrite(run, "worker1", [*older, *records(run, "worker1")])


def read_the_parameters_of_another_run(run: Path, runs: RealRuns) -> None:
    other = records(runs.of("alone"), "worker0")[-1]["fingerprint"]
    edit(run, "worker1", "finished", fingerprint=other)


def evaluate_an_earlier_checkpoint(run: Path, runs: RealRuns) -> None:
    """Who took no part evaluates what the chief's host would hold had it not saved for the last time."""
    with tempfile.TemporaryDirectory() as folder:
        chief = Path(shutil.copytree(runs.chief_of("noisy"), Path(folder) / "worker0"))
        events(chief, "evaluator0").unlink()
        every = records(chief, "worker0")
        last = max(number for number, record in enumerate(every) if record["event"] == "checkpointed")
        rewrite(chief, "worker0", [*every[:last], *every[last + 1 :]])
        evaluate(chief, run)

"""The evaluator, which also exports, reads the rows of tables from the files of a checkpoint."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.run_folders import records
from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.saved_runs import write_run
from trainer.contract.exit_codes import FINISHED, INPUT
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import FEWEST_ROWS
from trainer.evaluator import main
from trainer.model.checkpoint_parts import MOST_BYTES
from trainer.model.fingerprint import fingerprint_of

# So many times the fewest rows are 400 MB of table.
TIMES = 400


def settings(times: int = 1) -> TrainingSettings:
    return TrainingSettings(model="dlrm", optimizer="sgd", table_rows=times * FEWEST_ROWS)


@pytest.fixture
def hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluator hides the GPUs from its process, which is that of the tests here."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.mark.usefixtures("hidden_gpus")
def test_the_fingerprint_is_that_of_the_whole_tables(tmp_path: Path) -> None:
    values, tables, _ = write_run(tmp_path, settings())
    assert main([str(tmp_path)]) == FINISHED
    (evaluated,) = (each for each in records(tmp_path, "evaluator0") if each["event"] == "evaluated")
    assert evaluated["fingerprint"] == fingerprint_of({**values, **tables})
    # Rows drawn at random know nothing of the clicks.
    assert 0.45 < evaluated["metrics"]["auc"] < 0.55


def _change(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.usefixtures("hidden_gpus")
@pytest.mark.parametrize(
    ("damage", "why"), [(_change, "is damaged, or of another save"), (Path.unlink, "is not there")]
)
def test_a_damaged_file_of_rows_is_found(tmp_path: Path, damage: Callable[[Path], None], why: str) -> None:
    _, _, path = write_run(tmp_path, settings())
    file = Path(f"{path}.tables_16.1-of-3.00000.rows")
    damage(file)
    assert main(["--export", str(tmp_path)]) == main([str(tmp_path)]) == INPUT
    (failed,) = (each for each in records(tmp_path, "evaluator0") if each["event"] == "failed")
    assert f"{path}, cannot be read: {file.name} {why}" in failed["reason"]


def peak_bytes(run: Path, *options: str) -> int:
    """The most anonymous memory of an evaluator's process; pages of mapped files are not among it."""
    arguments = ["-m", "trainer.evaluator", *options, str(run)]
    process, most = ForkedProcess(arguments, ROOT, os.environ, run / "output"), 0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kilobytes = (int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
        most = max(most, 1024 * next(kilobytes, 0))
        time.sleep(0.005)
    assert process.poll() == FINISHED, (run / "output").read_text()
    return most


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        # All rows that a batch needs, and those of a chunk, have less than the smallest part of an export.
        ([], 1),
        # A part that is being written, the same as a tensor of TensorFlow, and as much for all else.
        (["--export"], 3),
    ],
)
@pytest.mark.chaos
def test_its_memory_does_not_depend_on_the_number_of_rows(
    tmp_path: Path, options: list[str], parts: int
) -> None:
    peaks, sizes = [], []
    for times in (1, TIMES):
        run = tmp_path / f"{times}"
        _, tables, _ = write_run(run, settings(times))
        sizes.append(tables["tables_16"].nbytes)
        peaks.append(peak_bytes(run, *options))
    assert sizes[1] > 2 * parts * MOST_BYTES
    assert peaks[1] - peaks[0] < parts * MOST_BYTES

"""`python -m psfleet.report`: its messages if it cannot draw."""

import subprocess
import sys
from pathlib import Path

from tests.psfleet.report.made_runs import make_run
from tests.repository import ROOT


def command(*arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *options, "-m", "psfleet.report", *arguments]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_without_matplotlib_the_command_names_the_needed_packages(tmp_path: Path) -> None:
    """The option -S hides all installed packages, as on the machine of a stranger."""
    done = command(str(make_run(tmp_path / "run", windows=2)), options=("-S",))
    assert done.returncode == 1
    assert (
        "the report needs matplotlib and jinja2: install what requirements/controller.txt names"
        in done.stderr
    )
    assert "python -m psfleet.evidence FOLDER" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    done = command(str(tmp_path / "absent"))
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path}/absent is not a folder; expected that of a run, such as runs/ID\n"


def test_invalid_settings_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", windows=2)
    (run / "settings.json").write_text('{"evidence": {"minimum_share": 7}}')
    done = command(str(run))
    assert done.returncode == 2
    assert "minimum_share is 7; expected a number from 0 to 1" in done.stderr


def test_an_unwritable_report_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", windows=2)
    (run / "report.html").mkdir()
    done = command(str(run))
    assert done.returncode == 1
    assert "the report was not written" in done.stderr
    assert "report.html" in done.stderr

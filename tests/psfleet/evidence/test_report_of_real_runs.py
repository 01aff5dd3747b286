"""The report of real runs, drawn by verify.yml and by `python -m psfleet.report`."""

from pathlib import Path

import pytest

from tests.psfleet.evidence.test_verify_playbook import verify
from tests.psfleet.report.html_pages import page_of, png_size, report


def test_verify_draws_the_report_and_says_where_it_is(run: Path) -> None:
    done = verify(run.parent)
    assert done.status == 0, done.output
    assert f"the report, for a browser: {run}/report.html" in done.output
    page = page_of(run)
    assert "2 workers trained one model together through 1 ps, and it converged" in page.text
    assert page.tags.count("svg") == 6
    assert png_size(run / "loss.png")[0] > 1000


def test_a_report_that_cannot_be_drawn_is_a_warning_and_none_of_an_earlier_verdict_is_left(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "none that there is")
    for name in ("report.html", "loss.png"):
        (run / name).write_text("of an earlier verdict")
    done = verify(run.parent)
    assert done.status == 0, done.output
    assert "report.html was not drawn: ValueError" in " ".join(done.output.split())
    assert (run / "verdict.json").exists()
    assert not (run / "report.html").exists()
    assert not (run / "loss.png").exists()


def test_check_mode_draws_nothing(run: Path) -> None:
    assert verify(run.parent, "--check").status == 0
    assert not (run / "report.html").exists()
    assert not (run / "loss.png").exists()


@pytest.mark.parametrize("kind", ["recorded", "silent"])
def test_a_program_has_a_report(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    page = report(folder)
    assert ("loss" in page.ids) and "ended by train.yml" in page.text
    assert (folder / "loss.png").exists() == (kind == "recorded")
    assert "worker0: the program finished (exit code 0)" in page.text

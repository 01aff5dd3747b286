"""report.html and loss.png, drawn of runs that were written for these tests."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.answer import Answer
from psfleet.evidence.card import CARDS
from psfleet.evidence.reading import read_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import judge_run
from psfleet.report.advice import next_steps
from tests.psfleet.report.html_pages import page_of, png_size, report
from tests.psfleet.report.made_runs import (
    make_plan,
    make_run,
    started,
    worker_records,
    write,
    write_evaluations,
)
from tests.repository import ROOT

SECTIONS = {"figures", "checks", "pictures", "workers", "cluster", "events", "logs", "settings", "not-shown"}
PICTURES = {"loss", "rates", "shares", "staleness", "balance", "timeline"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and its report."""
    folder = make_run(tmp_path_factory.mktemp("drawn") / "night-1")
    report(folder)
    return folder


@pytest.fixture
def run(drawn: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(drawn, tmp_path / "night-1"))


def test_the_page_has_every_section_and_picture_and_begins_with_the_verdict(drawn: Path) -> None:
    page = page_of(drawn)
    assert {*SECTIONS, *PICTURES, "verify"} <= set(page.ids)
    assert page.tags.count("svg") == len(PICTURES)
    verdict = judge_run(read_run(drawn), EvidenceSettings())
    first = [data.strip() for tag, data in page.texts if tag == "h1"]
    assert first == [verdict.verdict]
    assert page.text.index(verdict.verdict) < page.text.index("Key figures")
    for check in verdict.checks:
        assert f"{check.check.replace('_', ' ')} {check.detail}" in page.text


def test_evaluations_are_drawn_with_the_goal_and_the_bound_that_ends_the_run(run: Path) -> None:
    content = json.loads((run / "settings.json").read_text())
    asked = {"evaluate_every_steps": 100, "stop_when": "loss<0.13"}
    (run / "settings.json").write_text(json.dumps(content | {"training": content["training"] | asked}))
    metrics = [
        (step, {"loss": 40 / step, "weight": 2 - 1 / step, "bias": 10.0}) for step in range(20, 401, 20)
    ]
    write_evaluations(run, make_plan(), metrics)
    page = report(run)
    assert "evaluations" in page.ids
    assert page.tags.count("svg") == len(PICTURES) + 1
    drawn = [data.strip() for tag, data in page.texts if tag == "text"]
    assert {"loss", "weight", "ends the run", "goal of the verdict"} <= set(drawn)
    assert "bias" not in drawn  # it was always the same
    assert drawn.count("ends the run") == 1


def test_tables_are_shown_with_their_hot_rows_and_what_each_ps_held(run: Path) -> None:
    plan = make_plan()
    records = worker_records(plan, 0, 20)
    records[1]["ps_parameters"] = {
        "ps0": {"variables": 3, "bytes": 5_000_000, "rows": 2000, "table_bytes": 4_000_000}
    }
    use = {
        "rows": 2000,
        "width": 8,
        "ids": 400,
        "distinct": 100,
        "hot": {"<b>7": 40, "9": 20},
        "of_ps": {"ps0": 150},
    }
    sampled = {
        "event": "tables",
        "global_step": 0,
        "samples": 3,
        "examples": 200,
        "tables": {"<i>users": use},
    }
    write(run, plan, plan.tasks[1], [*records[:3], sampled, *records[3:]])
    page = report(run)
    assert "tables" in page.ids
    cells = [data.strip() for tag, data in page.texts if tag in {"td", "th"}]
    row = cells[cells.index("<i>users") :][:10]
    assert row == [
        *("<i>users", "2,000", "8", "200", "400", "100", "5.0%", "50"),
        *("<b>7: 10.0%", "15.0%"),
    ]
    assert "tables" not in cells  # the timeline leaves the samples out
    assert cells[cells.index("4 MB") - 2 :][:5] == ["ps0", "2,000", "4 MB", "1 MB", "100.0%"]


def test_a_model_without_tables_has_no_section_of_them(drawn: Path) -> None:
    assert "tables" not in page_of(drawn).ids


def test_a_run_that_was_to_be_evaluated_and_was_not_says_so(run: Path) -> None:
    content = json.loads((run / "settings.json").read_text())
    training = content["training"] | {"evaluate_every_steps": 100}
    (run / "settings.json").write_text(json.dumps(content | {"training": training}))
    assert "The run recorded no evaluation before its end." in report(run).text


def test_failed_checks_come_first_and_have_advice(run: Path) -> None:
    plan = make_plan()
    records = worker_records(plan, 1, 20)
    records[-1] = {"event": "failed", "class": "diverged", "reason": "the loss was nan"}
    write(run, plan, plan.tasks[2], records)
    page = report(run)
    order = [data.strip() for tag, data in page.texts if tag == "td" and data.strip() in {"holds", "failed"}]
    assert order == sorted(order)
    assert "failed" in order
    assert "What to do next" in page.text
    assert "Lower trainer_learning_rate" in page.text


def test_a_failing_check_is_named_with_the_advice_of_its_card() -> None:
    answers = [Answer(name, False, "") for name in ("loss_fell", "loss_settled", "workers_met")]
    assert next_steps(answers, problem="") == (
        ("loss fell, loss settled", CARDS["loss_fell"].advice),
        ("workers met", CARDS["workers_met"].advice),
    )


def test_the_page_needs_no_network_and_no_script(drawn: Path) -> None:
    page = page_of(drawn)
    assert page.references and all(reference.startswith("#") for reference in page.references)
    text = (drawn / "report.html").read_text()
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_each_id_that_is_referred_to_exists_once_in_the_page(drawn: Path) -> None:
    page = page_of(drawn)
    assert len(page.ids) == len(set(page.ids))
    used = re.findall(r"url\(#([^)]+)\)", (drawn / "report.html").read_text())
    assert {*used, *(reference[1:] for reference in page.references)} <= set(page.ids)


def test_each_picture_has_a_description_for_screen_readers(drawn: Path) -> None:
    pictures = [(name, value) for tag, name, value in page_of(drawn).attributes if tag == "svg"]
    assert [value for name, value in pictures if name == "role"] == ["img"] * len(PICTURES)
    described = [value for name, value in pictures if name == "aria-label"]
    assert len(described) == len(PICTURES)
    assert any(value.startswith("Loss. The mean loss of each window") for value in described)


def test_texts_in_pictures_are_text_elements(drawn: Path) -> None:
    texts = [data for tag, data in page_of(drawn).texts if tag == "text"]
    assert {"worker0", "worker1", "global step", "target loss", "4-7"} - set(texts) == {"4-7"}


def test_loss_png_is_a_picture_of_its_size(drawn: Path) -> None:
    width, height = png_size(drawn / "loss.png")
    assert width == 1120
    assert 600 <= height <= 900


def test_the_same_folder_gives_the_same_bytes_in_another_process(run: Path) -> None:
    before = {name: (run / name).read_bytes() for name in ("report.html", "loss.png")}
    command = [sys.executable, "-m", "psfleet.report", str(run)]
    environment = {"PYTHONHASHSEED": "7", "MPLBACKEND": "svg", "HOME": str(run.parent)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{run}/report.html\n"
    assert {name: (run / name).read_bytes() for name in before} == before


HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> $\\frac{1 \u202e\x1b[31m\x00 &amp; \ud800"
)


def in_plan(folder: Path) -> None:
    plan = make_plan(host=HOSTILE, address=HOSTILE)
    shutil.rmtree(folder)
    make_run(folder, plan)


def in_records(folder: Path) -> None:
    plan = make_plan()
    records = worker_records(plan, 0, 5)
    records[0] = started(1000, tensorflow=HOSTILE, python=HOSTILE, release=HOSTILE)
    records[-2]["metrics"] = {HOSTILE: 1.0}
    records[-1] = {"event": "failed", "class": HOSTILE, "reason": HOSTILE}
    for event in ("recovering", "checkpoint_failed"):
        records.append({"event": event, "reason": HOSTILE, "global_step": 3})
    records.append({"event": "restored", "checkpoint": HOSTILE, "global_step": 3})
    write(folder, plan, plan.tasks[1], records)


def in_settings(folder: Path) -> None:
    program = {"name": HOSTILE, "file": HOSTILE, "release": HOSTILE, "arguments": [HOSTILE], HOSTILE: HOSTILE}
    (folder / "settings.json").write_text(json.dumps({"training": {}, "program": program}))


def in_logs_and_endings(folder: Path) -> None:
    (folder / "logs").mkdir()
    line = HOSTILE.encode("utf-8", errors="surrogatepass")
    (folder / "logs/worker0.out").write_bytes(b"x" * 100_000 + b"\xff\n" + line + b"\n")
    ending = {"name": "worker0", "alive": False, "failed": True, "exit_code": 1, "reason": HOSTILE}
    (folder / "tasks.json").write_text(json.dumps([ending]))


@pytest.mark.parametrize("where", [in_plan, in_records, in_settings, in_logs_and_endings])
def test_hostile_texts_are_shown_without_any_effect(run: Path, where: Callable[[Path], None]) -> None:
    clean = page_of(run)
    where(run)
    page = report(run)
    assert "script" not in page.tags and "img" not in page.tags
    assert not page.handlers
    assert "<script>alert(1)</script>" in page.text, "the text itself is shown"
    assert set(page.tags) <= {*clean.tags, "pre", "h3", "li", "ul"}
    assert not re.search("[\u202e\x1b\x00\ud800]", (run / "report.html").read_text())


def test_a_name_is_not_drawn_as_a_formula(tmp_path: Path) -> None:
    run = make_run(tmp_path / "$\\frac{1$ <b>", windows=2)
    assert "Run $\\frac{1$ <b>" in report(run).text
    assert png_size(run / "loss.png")


def test_the_size_of_the_page_is_limited_whatever_a_task_recorded(run: Path) -> None:
    plan = make_plan()
    records = worker_records(plan, 0, 20)
    records[-2]["metrics"] = {f"metric{number}": 1.0 for number in range(5000)}
    lost = {"event": "recovering", "monotonic": 12.0}
    saved = {"event": "checkpoint_failed", "global_step": 200, "monotonic": 12.0}
    for number in range(3000):
        records.append({**lost, "reason": f"{number}" * 1000})
        records.append({**saved, "reason": "full", "pid": number})
    write(
        run, plan, plan.tasks[1], [*records, {"event": "failed", "class": "x" * 10**6, "reason": "y" * 10**6}]
    )
    page = report(run)
    assert (run / "report.html").stat().st_size < 400_000
    assert "more rows" in page.text


def test_impossible_numbers_do_not_prevent_the_page(run: Path) -> None:
    plan = make_plan()
    records = worker_records(plan, 1, 20)
    records[3] |= {"global_step_after": 2**63 - 1, "seconds": 1e-300, "monotonic": 1e300}
    records[4] |= {"loss": None, "loss_mean": None, "monotonic": -1e300}
    records[5] |= {"loss_mean": 1e308, "seconds": 0, "wall": 1e300, "staleness_histogram": [2**63 - 1]}
    write(run, plan, plan.tasks[2], records)
    page = report(run)
    assert page.tags.count("svg") == len(PICTURES)
    assert "1 window with a loss that was not finite" in page.text


def test_the_page_of_an_empty_folder_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "loss.png").write_bytes(b"of an earlier run")
    page = report(tmp_path)
    assert {*SECTIONS, *PICTURES} <= set(page.ids)
    assert "svg" not in page.tags
    for missing in (
        "The run cannot be read",
        "plan.json: No such file",
        "No worker recorded a finite loss.",
        "which hosts and tasks the run had is not known",
        "No task left records of what happened.",
        "Copy the whole folder again from where the run was collected",
    ):
        assert missing in page.text
    assert not (tmp_path / "loss.png").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("events/worker1.jsonl", None),
        ("events/worker0.jsonl", b'{"v": 1, "event'),
        ("plan.json", b"[]"),
        ("settings.json", b"nothing"),
        ("tasks.json", b"{}"),
        ("manifest.json", b'{"files": 3}'),
    ],
)
def test_a_damaged_folder_gives_a_page(run: Path, file: str, content: bytes | None) -> None:
    if content is None:
        (run / file).unlink()
    else:
        (run / file).write_bytes(content)
    assert {*SECTIONS, *PICTURES} <= set(report(run).ids)


def test_the_page_of_a_program_without_records_shows_the_ends_of_its_tasks_and_its_log(run: Path) -> None:
    shutil.rmtree(run / "events")
    program = {"name": "clicks", "file": "train.py"}
    (run / "settings.json").write_text(json.dumps({"training": {}, "program": program}))
    endings = [
        {"name": name, "alive": False, "failed": code == 1, "exit_code": code, "bytes_received": 5_000_000}
        | {"bytes_sent": 12_000, "restarts": 2 if name == "worker0" else 0, "reason": "", "refused": refused}
        for name, code, refused in (("ps0", 143, 3), ("worker0", 0, 0), ("worker1", 1, None))
    ]
    (run / "tasks.json").write_text(json.dumps(endings))
    (run / "logs").mkdir()
    (run / "logs/worker1.out").write_text("first\n" * 50 + "IndexError: the last line\n")
    page = report(run)
    assert "ended by itself, started again 2 times" in page.text
    assert "failed, exit code 1" in page.text
    assert "clicks, train.py" in page.text
    assert "received 5 MB, sent 12 kB" in page.text
    assert "port fence refused 3 connections to ps0 " in page.text
    (log,) = [data for tag, data in page.texts if tag == "pre" and "first" in data]
    assert log.splitlines()[-1] == "IndexError: the last line"
    assert len(log.splitlines()) == 15
    assert "logs/worker0.out is not in the folder" in page.text
    assert "A user's program does not know the staleness" in page.text


def test_a_link_in_place_of_a_log_is_not_read(run: Path, tmp_path: Path) -> None:
    (run / "logs").mkdir()
    (tmp_path / "secret").write_text("of the reader's machine\n")
    (run / "logs/worker0.out").symlink_to(tmp_path / "secret")
    assert "of the reader's machine" not in report(run).text


def test_the_page_of_300_workers_is_small_and_summarises_them(tmp_path: Path) -> None:
    plan = make_plan(workers=300, ps=2)
    folder = make_run(tmp_path / "wide", plan, windows=8)
    write(folder, plan, plan.tasks[9], [*worker_records(plan, 7, 4), started(5, pid=101, monotonic=9.0)])
    page = report(folder)
    size = (folder / "report.html").stat().st_size
    assert size < 400_000, f"{size} bytes"
    texts = [data for tag, data in page.texts if tag == "text"]
    assert "range of 300 workers" in texts
    assert "worker7" in texts, "the one that is unlike the others has a line of its own"
    assert "worker8" not in texts
    assert "node0 … node299 (299)" in page.text
    assert page.text.count("port 2223") == 2, "those alike, and the one that was started again"
    assert "ps0 … worker299 (302)" in page.text, "they started: one row"

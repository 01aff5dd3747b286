"""A task whose host was replaced left records on both hosts: the verdict reads all that was collected."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.carry.collected_archive import unpack
from psfleet.carry.collected_files import Places, allowed_names
from psfleet.evidence.__main__ import main
from psfleet.evidence.run_manifest import Manifest
from tests.psfleet.carry.brought_files import packed
from tests.psfleet.evidence.run_folders import detail, events, records, verdict_of


def collect(run: Path, host: str, task: str, name: str, text: str) -> None:
    """Collect a file of a task from a host."""
    archive = packed(run.parent / "a.tar.gz", [(name, text.encode())])
    places = Places(run, host, [host], allowed_names([{"name": task}], "worker0", program=False))
    assert unpack(archive, places, 10**8) == ([name], [])


def replace_host(run: Path, task: str) -> int:
    """Let the run's second part be the first that a new host of a task knew; return where that begins."""
    lines = events(run, task).read_text().splitlines(keepends=True)
    begins = [number for number, record in enumerate(records(run, task)) if record["event"] == "started"]
    events(run, task).unlink()
    first, second = "".join(lines[: begins[1]]), "".join(lines[begins[1] :])
    name = f"events/{task}.jsonl"
    collect(run, "n2", task, name, first[:-100])
    collect(run, "n2", task, name, first)
    collect(run, "n9", task, name, second[: len(second) // 2])
    collect(run, "n9", task, name, second)
    assert (run / "earlier/1" / name).read_text() == first
    assert [path.name for path in (run / "earlier").iterdir()] == ["1"]
    return begins[1]


@pytest.mark.parametrize("task", ["worker1", "ps0"])
def test_a_run_is_judged_by_the_records_of_both_hosts_of_a_task(
    copy_of: Callable[[str], Path], task: str
) -> None:
    run = copy_of("resized")
    before = verdict_of(run)
    assert before.verdict == "proven"
    assert replace_host(run, task)
    assert verdict_of(run).as_json() == before.as_json()
    Manifest.of(run).write(run)
    assert f"earlier/1/events/{task}.jsonl" in Manifest.read(run).files
    assert "bytes are as they were collected" in detail_of_files(run)
    (run / "earlier/1/events" / f"{task}.jsonl").write_text("")
    assert f"earlier/1/events/{task}.jsonl was changed" in detail_of_files(run)
    assert verdict_of(run).verdict != "proven"


def detail_of_files(run: Path) -> str:
    return detail(verdict_of(run), "files_unchanged")


def test_records_that_two_files_of_a_task_share_count_once(copy_of: Callable[[str], Path]) -> None:
    run = copy_of("resized")
    before = verdict_of(run)
    lines = events(run, "worker1").read_text().splitlines(keepends=True)
    # The host lost the last lines that it had when it was collected, and went on.
    events(run, "worker1").write_text("".join(lines[:20]))
    collect(run, "n2", "worker1", "events/worker1.jsonl", "".join([*lines[:10], *lines[20:]]))
    assert (run / "earlier/1/events/worker1.jsonl").exists()
    assert verdict_of(run).as_json() == before.as_json()


def test_a_packed_run_has_the_earlier_records_too(
    copy_of: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy_of("resized")
    replace_host(run, "worker1")
    Manifest.of(run).write(run)
    assert main([str(run), "--pack", str(tmp_path / "run.tar.gz")]) == 0
    capsys.readouterr()
    assert main([str(tmp_path / "run.tar.gz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(verdict_of(run).as_json()))


def test_a_pattern_is_sought_in_the_logs_of_both_hosts(silent: Path) -> None:
    pattern = {"tasks": "worker1", "pattern": r"weight: ([0-9.]+)", "minimum": 1.8, "maximum": 2.2}
    collect(silent, "n9", "worker1", "logs/worker1.out", "began on another host\n")
    assert (silent / "earlier/1/logs/worker1.out").exists()
    assert verdict_of(silent, log_patterns=[pattern]).verdict == "completed"
    collect(silent, "n9", "worker1", "logs/worker1.out", "began on another host\nweight: 9.0\n")
    found = detail(verdict_of(silent, log_patterns=[pattern]), "log_patterns")
    assert "worker1 printed 'weight: 9.0'" in found


def test_a_link_in_a_strangers_folder_adds_no_earlier_records(copy_of: Callable[[str], Path]) -> None:
    run = copy_of("resized")
    before = verdict_of(run)
    other = run.parent / "other/events"
    other.mkdir(parents=True)
    (other / "worker1.jsonl").write_text("no record\n")
    (run / "earlier").mkdir()
    (run / "earlier/1").symlink_to(other.parent)
    assert verdict_of(run).as_json() == before.as_json()

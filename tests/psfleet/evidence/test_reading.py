"""Files of a run that are cut, lost, damaged or of several hosts: nothing is proven on too little."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.carry.collected_archive import unpack
from psfleet.carry.collected_files import Places, allowed_names
from psfleet.evidence import reading
from psfleet.evidence.__main__ import main
from psfleet.evidence.run_manifest import Manifest
from tests.psfleet.carry.brought_files import packed
from tests.psfleet.evidence.cases import ANY, Case, cases, do
from tests.psfleet.evidence.run_folders import (
    detail,
    edit,
    events,
    records,
    remove,
    rewrite,
    tell_settings,
    verdict_of,
    write,
)


def lose_the_folder(run: Path) -> None:
    shutil.rmtree(run)


def forge_the_plan(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["tasks"][1]["port"] += 1
    (run / "plan.json").write_text(json.dumps(plan))


def swell(run: Path, name: str) -> None:
    """Make a file a terabyte long without using disk space."""
    os.truncate(run / name, 2**40)


def put_many_values(run: Path) -> None:
    (run / "plan.json").write_text(f"[{'[],' * 20_000}0]")


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


def lose_the_events(run: Path) -> None:
    shutil.rmtree(run / "events")


RECORDS_COMPLETE = {
    "no records": Case(lose_the_events, 2, "ps0.jsonl: No such file", ANY),
    "a replication that is none": Case(
        do(tell_settings, replication="ring"),
        2,
        "settings.json: replication is 'ring'; expected one of async, sync, in_graph, local",
        "every check",
    ),
    "more replicas than workers": Case(
        do(tell_settings, replicas_to_aggregate=9),
        2,
        "replicas_to_aggregate is 9; expected an integer from 1 to 3",
        "every check",
        kind="sync",
    ),
    "servers or not": Case(
        do(tell_settings, existing_servers="perhaps"),
        2,
        "existing_servers is 'perhaps'; expected true or false",
        "every check",
    ),
    "no settings, and the replication recorded": Case(
        do(remove, "settings.json"),
        0,
        headline="PROVEN: 3 workers trained one model together, 2 gradients to a step, through 2 ps, and it"
        " converged",
        kind="sync",
    ),
    "no replication told or recorded": Case(
        (
            do(write, "settings.json", '{"training": {"model": "linear"}, "tasks": {}}'),
            do(edit, "worker0 worker1", "started", settings={"model": "linear"}),
        ),
        0,
    ),
    "no folder": Case(lose_the_folder, 2, "is not a folder", failing="every check"),
    "a plan that cannot be read": Case(
        do(write, "plan.json", "{"), 2, "plan.json: not JSON", failing="every check"
    ),
    "a plan that was forged": Case(forge_the_plan, 2, "the plan's hash is", failing="every check"),
    "a plan that has no end": Case(
        do(swell, "plan.json"),
        2,
        "plan.json: it has 1,099,511,627,776 bytes, and at most 16,000,000 are read",
        failing="every check",
    ),
    "a plan of more values than memory is taken for": Case(
        put_many_values, 2, "plan.json: it has 40,001 values", failing="every check"
    ),
    "settings that are no object": Case(
        do(write, "settings.json", "[]"), 2, "settings.json: not a JSON object", failing="every check"
    ),
    "a training that is no object": Case(
        do(write, "settings.json", '{"training": ["linear"]}'),
        2,
        "settings.json: training is ['linear']; expected an object",
        failing="every check",
    ),
    "a program that is none": Case(
        do(write, "settings.json", '{"training": {}, "program": "main.py"}'),
        2,
        "program is 'main.py'; expected an object or null",
        failing=ANY,
        kind="silent",
    ),
}


@cases(records_complete=RECORDS_COMPLETE)
def test_a_run_that_cannot_be_read_gets_no_answer(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_a_file_that_is_cut_at_any_place_leaves_the_verdict_open(run: Path, task: str) -> None:
    """The rest of a cut file never contradicts the run.

    The file is cut within a line, and exactly at the beginning of that line.
    """
    content = events(run, task).read_bytes()
    within = range(0, len(content) - 1, max(len(content) // 30, 1))
    last_line = content.rindex(b"\n", 0, -1) + 1
    for end in sorted({*within, *(content.rfind(b"\n", 0, cut) + 1 for cut in within), last_line}):
        events(run, task).write_bytes(content[:end])
        verdict = verdict_of(run)
        assert verdict.exit_code == 2, (end, verdict.failing)


def test_the_records_of_a_run_are_read_up_to_a_limit_for_all_tasks_together(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [events(run, task).stat().st_size for task in ("ps0", "worker0", "worker1")]
    monkeypatch.setattr(reading, "MOST_OF_A_RUN", sum(sizes) + events(run, "evaluator0").stat().st_size)
    assert verdict_of(run).exit_code == 0
    monkeypatch.setattr(reading, "MOST_OF_A_RUN", reading.MOST_OF_A_RUN - 1)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert "events/worker1.jsonl: it has" in detail(verdict, "records_complete")
    assert "(of all tasks" in detail(verdict, "records_complete")


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_the_loss_of_any_necessary_line_is_noticed(run: Path, task: str) -> None:
    """The run stays proven only if no check needs the line."""
    every = records(run, task)
    # Any single gradient test may be missing, and no check needs what processes used.
    spare = {"restored"} if task == "evaluator0" else {"gradients", "resources"}
    for number, lost in enumerate(every):
        if number > 6 and lost["event"] == "step" and number % 10:
            continue  # the other windows are alike
        rewrite(run, task, [*every[:number], *every[number + 1 :]])
        # A slow run saves more often; the last checkpoint alone is necessary.
        later = [each["event"] for each in every[number + 1 :]]
        replaced = lost["event"] == "checkpointed" and "checkpointed" in later
        assert (verdict_of(run).exit_code == 0) == (replaced or lost["event"] in spare), lost


def detail_of_files(run: Path) -> str:
    return detail(verdict_of(run), "files_unchanged")


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

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from psfleet.watch.lead_reading import (
    Reading,
    age_command,
    age_of,
    places,
    probe_command,
    read_command,
    without_stale_word,
)
from tests.repository import ROOT
from trainer.contract.progress import Progress

PATHS = {
    "state_directory": "/var/lib/psfleet",
    "log_directory": "/var/log/psfleet",
    "install_directory": "/opt/psfleet",
}
REFUSED = {"worker1": "connection refused"}
UNIT = "ActiveState=active\nNRestarts=2\nExecMainStartTimestampMonotonic=90000000\n"


def run(program: object = None) -> dict[str, Any]:
    lead = {"name": "chief0", "job": "chief", "index": 0}
    return {"id": "r1", "lead": lead, "settings": {"program": program}}


def said(progress: str, *parts: str) -> Reading:
    unit, *others = (f"\n{part}" for part in parts)
    return Reading.of("--psfleet--".join([progress, unit, "\n100.5 33.0\n", *others]))


def test_only_the_output_of_a_program_is_read() -> None:
    command = read_command(run({"release": "abc"}), PATHS)
    assert "psfleet-chief@0.service" in command
    assert "/var/log/psfleet/r1/chief0.out" in command
    assert "chief0.out" not in read_command(run(), PATHS)


def test_a_reading_has_progress_state_time_and_output() -> None:
    records, output = '{"event": "restored"}\n{"event": "che\n', "first\nsecond --psfleet-- third\n"
    reading = said('{"phase": "training"}\n', UNIT, records, output)
    assert reading.records == ({"event": "restored"},)
    assert (reading.alive, reading.restarts) == (True, 2)
    assert (reading.progress.phase, reading.progress.elapsed) == ("training", 10.5)
    assert reading.progress.last_line == "second --psfleet-- third"


@pytest.mark.parametrize(("job", "alive"), [("", False), ("Job=12\n", True)])
def test_a_lead_that_has_not_written_yet_is_starting_and_alive_where_it_waits_for_another_unit(
    job: str, alive: bool
) -> None:
    reading = said("\n", UNIT.replace("=active", "=inactive") + job)
    assert (reading.alive, reading.progress.phase, reading.progress.last_line) == (alive, "starting", "")


def test_a_word_that_is_nested_too_deeply_is_none() -> None:
    deep = "[" * 65536 + "\n"
    reading = said(deep, UNIT, deep)
    assert (reading.progress.phase, reading.records) == ("starting", ())


def test_an_answer_without_the_unit_is_none() -> None:
    with pytest.raises(ValueError, match="systemctl said nothing"):
        Reading.of('{"phase": "training"}\n--psfleet--\n')


def test_a_host_tells_which_ports_do_not_answer(tmp_path: Path) -> None:
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "current").symlink_to(ROOT)
    command = probe_command({"worker1": "127.0.0.1:1"}, str(tmp_path))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == REFUSED


def test_the_shell_of_a_host_gives_what_a_reading_needs(tmp_path: Path) -> None:
    events = tmp_path / "runs" / "r1" / "events" / "chief0.jsonl"
    events.parent.mkdir(parents=True)
    (tmp_path / "runs" / "r1" / "progress.json").write_text('{"phase": "training", "global_step": 7}\n')
    lines = [{"event": "started", "wall": 1000.0}, {"event": "step"}, {"event": "restored", "global_step": 5}]
    events.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    paths = {**PATHS, "state_directory": str(tmp_path)}
    command = ["sh", "-c", read_command(run(), paths)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    # There need be no systemd where tests run.
    said, _, *others = answer.split("--psfleet--")
    reading = Reading.of("--psfleet--".join([said, UNIT, *others]))
    assert reading.progress.global_step == 7
    assert [record["event"] for record in reading.records] == ["restored"]
    aged = subprocess.run(["sh", "-c", age_command(run(), paths)], capture_output=True, text=True, check=True)
    assert age_of(aged.stdout, reading) == pytest.approx(time.time() - 1000, abs=60)


def test_the_age_of_a_run_is_of_the_first_process_of_its_present_part() -> None:
    starts = [json.dumps({"event": "started", "wall": wall}) for wall in (100.0, 900.0, 950.0)]
    reading = Reading(Progress("training", elapsed=30.0), restarts=1)
    assert age_of("\n".join([*starts, "1000.0"]), reading) == 100.0
    assert age_of("1000.0\n", reading) == 30.0
    assert age_of("", reading) == 30.0


def test_the_last_word_of_an_earlier_part_is_none_of_this_one() -> None:
    stale = Progress("stopped", wall=5.0, global_step=100)
    assert without_stale_word(Reading(stale), stale).progress.phase == "starting"
    assert without_stale_word(Reading(stale, alive=False), stale).progress.phase == "stopped"
    later = Reading(Progress("training", wall=6.0, global_step=100))
    assert without_stale_word(later, stale) == later


def test_the_logs_are_named_by_host() -> None:
    tasks = [{"name": "ps0", "host": "node1"}, {"name": "worker0", "host": "node1"}]
    assert places({**run(), "tasks": [*tasks, {"name": "worker1", "host": "node2"}]}, PATHS) == [
        "logs: node1:/var/log/psfleet/r1/<task>.out of ps0, worker0",
        "logs: node2:/var/log/psfleet/r1/<task>.out of worker1",
    ]

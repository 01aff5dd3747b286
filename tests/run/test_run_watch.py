import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.run_watch import Listeners, Reading, probe_command, read_command

PATHS = {
    "state_directory": "/var/lib/psfleet",
    "log_directory": "/var/log/psfleet",
    "install_directory": "/opt/psfleet",
}
LISTENERS = {"ps0": "10.0.0.1:2222", "worker1": "10.0.0.2:2222", "worker0": ""}
REFUSED = {"worker1": "connection refused"}
UNIT = "ActiveState=active\nNRestarts=2\nExecMainStartTimestampMonotonic=90000000\n"


def run(program: object = None) -> dict[str, Any]:
    lead = {"name": "chief0", "job": "chief", "index": 0}
    return {"id": "r1", "lead": lead, "settings": {"program": program}}


def test_reads_the_files_and_the_unit_of_the_lead() -> None:
    command = read_command(run({"release": "abc"}), PATHS)
    assert "/var/lib/psfleet/runs/r1/progress.json" in command
    assert "psfleet-chief@0.service" in command
    assert "/var/log/psfleet/r1/chief0.out" in command


def test_the_output_of_a_model_of_ours_is_not_read() -> None:
    assert "chief0.out" not in read_command(run(), PATHS)


def test_a_reading_has_progress_state_time_and_output() -> None:
    parts = ['{"phase": "training"}\n', f"\n{UNIT}", "\n100.5 33.0\n", "\nfirst\nsecond --psfleet-- third\n"]
    reading = Reading.of("--psfleet--".join(parts))
    assert (reading.alive, reading.restarts) == (True, 2)
    assert (reading.progress.phase, reading.progress.elapsed) == ("training", 10.5)
    assert reading.progress.last_line == "second --psfleet-- third"


def test_a_lead_that_has_not_written_yet_is_starting() -> None:
    reading = Reading.of(f"\n--psfleet--\n{UNIT.replace('=active', '=inactive')}--psfleet--\n100.5 33.0\n")
    assert (reading.alive, reading.progress.phase, reading.progress.last_line) == (False, "starting", "")


def test_a_lead_whose_start_waits_for_another_unit_is_alive() -> None:
    unit = UNIT.replace("=active", "=inactive") + "Job=12\n"
    assert Reading.of(f"\n--psfleet--\n{unit}--psfleet--\n100.5 33.0\n").alive


def test_an_answer_without_the_unit_is_none() -> None:
    with pytest.raises(ValueError, match="systemctl said nothing"):
        Reading.of('{"phase": "training"}\n--psfleet--\n')


def test_a_task_that_stops_to_answer_is_told_of_once_and_again_when_it_answers() -> None:
    listeners = Listeners(LISTENERS)
    assert listeners.look({}) == []
    assert [listeners.look(REFUSED) for _ in range(2)] == [[], []]
    (note,) = listeners.look(REFUSED)
    assert "worker1 at 10.0.0.2:2222 does not answer any more (connection refused)" in note
    assert listeners.look(REFUSED) == []
    assert listeners.look({}) == ["worker1 at 10.0.0.2:2222 answers again"]
    assert listeners.look({}) == []


def test_a_restart_is_no_news() -> None:
    listeners = Listeners(LISTENERS)
    listeners.look({})
    assert [listeners.look(silent) for silent in (REFUSED, REFUSED, {})] == [[], [], []]


def test_a_task_that_never_listened_is_not_missed() -> None:
    listeners = Listeners(LISTENERS)
    assert [listeners.look(REFUSED) for _ in range(5)] == [[]] * 5
    assert "worker0" not in listeners.addresses


def test_a_host_tells_which_ports_do_not_answer(tmp_path: Path) -> None:
    (tmp_path / "environment" / "bin").mkdir(parents=True)
    (tmp_path / "environment" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "current").symlink_to(Path(__file__).resolve().parents[2])
    command = probe_command({"worker1": "127.0.0.1:1"}, str(tmp_path))
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == REFUSED

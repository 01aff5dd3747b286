import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from psfleet.watch.lead_reading import (
    Reading,
    age_command,
    age_of,
    log_places,
    read_command,
    without_stale_progress,
)
from trainer.contract.progress import Progress

PATHS = {
    "configuration_directory": "/etc/psfleet",
    "state_directory": "/var/lib/psfleet",
    "log_directory": "/var/log/psfleet",
    "install_directory": "/opt/psfleet",
}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its rights")
UNIT = "ActiveState=active\nNRestarts=2\nExecMainStartTimestampMonotonic=90000000\n"


def run(program: object = None) -> dict[str, Any]:
    lead = {"name": "chief0", "job": "chief", "index": 0}
    return {"id": "r1", "lead": lead, "settings": {"program": program}}


def said(progress: str, *parts: str) -> Reading:
    unit, *others = (f"\n{part}" for part in parts)
    return Reading.of("--psfleet--".join([unit, "\n100.5 33.0\n", "\n1000 4096\n", progress, *others]))


def test_only_the_output_of_a_program_is_read() -> None:
    command = read_command(run({"release": "abc"}), PATHS, "psfleet")
    assert "psfleet-chief@0.service" in command
    assert "/var/log/psfleet/r1/chief0.out" in command
    assert "chief0.out" not in read_command(run(), PATHS, "psfleet")


def test_a_reading_has_progress_state_time_and_output() -> None:
    records, output = '{"event": "restored"}\n{"event": "che\n', "first\nsecond --psfleet-- third\n"
    reading = said('{"phase": "training"}\n', UNIT, records, output)
    assert reading.records == ({"event": "restored"},)
    assert (reading.alive, reading.restarts) == (True, 2)
    assert (reading.progress.phase, reading.progress.elapsed) == ("training", 10.5)
    assert reading.progress.last_line == "second --psfleet-- third"
    assert reading.free_bytes == 4096000


@pytest.mark.parametrize(("job", "alive"), [("", False), ("Job=12\n", True)])
def test_a_lead_without_progress_is_starting_and_alive_if_its_start_job_is_queued(
    job: str, alive: bool
) -> None:
    reading = said("\n", UNIT.replace("=active", "=inactive") + job)
    assert (reading.alive, reading.progress.phase, reading.progress.last_line) == (alive, "starting", "")


def test_progress_that_is_nested_too_deeply_is_ignored() -> None:
    deep = "[" * 65536 + "\n"
    reading = said(deep, UNIT, deep)
    assert (reading.progress.phase, reading.records) == ("starting", ())


@pytest.mark.parametrize("uptime", ["inf", "nan", "1e300", ""])
def test_an_invalid_uptime_gives_no_elapsed_time(uptime: str) -> None:
    reading = Reading.of("--psfleet--".join([UNIT, uptime]))
    assert (reading.progress.elapsed, reading.restarts) == (None, 2)


@pytest.mark.parametrize("count", ["9" * 400, "9" * 5000, "x"])
def test_invalid_counts_are_refused_or_ignored(count: str) -> None:
    with suppress(ValueError):  # as where the host does not answer
        reading = Reading.of(f"ActiveState=active NRestarts={count} ExecMainStartTimestampMonotonic={count}")
        assert (reading.progress.elapsed, reading.restarts) == (None, 0)


@pytest.mark.parametrize(
    "answer", ['{"wall": NaN}\n9', '{"wall": []}\n9', '{"wall": 1}\ninf', '{"wall": 1}\nx', '{"wall":\n9', ""]
)
def test_without_a_valid_start_time_a_run_has_the_age_of_its_process(answer: str) -> None:
    assert age_of(answer, Reading(Progress("training", elapsed=7.0))) == 7.0


def test_an_answer_without_the_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="systemctl printed nothing"):
        Reading.of('\n--psfleet--\n--psfleet--{"phase": "training"}\n')


@pytest.fixture
def written(open_folder: Path) -> Path:
    """Return the state directory of a host, as its tasks have it: others' rights end here."""
    state = open_folder / "state"
    events = state / "runs" / "r1" / "events" / "chief0.jsonl"
    events.parent.mkdir(parents=True)
    state.chmod(0o750)
    (state / "runs" / "r1" / "progress.json").write_text('{"phase": "training", "global_step": 7}\n')
    started, restored = {"event": "started", "wall": 1000.0}, {"event": "restored", "global_step": 5}
    lines = (json.dumps(line, separators=(",", ":")) for line in (started, {"event": "step"}, restored))
    events.write_text("".join(f"{line}\n" for line in lines))
    shutil.chown(state, "nobody", "nogroup")
    return state


def told(state: Path) -> tuple[Reading, str]:
    """Return the reading of the run and its age from commands run as root in this host's shell."""
    paths = {**PATHS, "state_directory": str(state), "log_directory": str(state)}
    answers = [
        subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout
        for command in (
            read_command(run({"release": "abc"}), paths, "nogroup"),
            age_command(run(), paths, "nogroup"),
        )
    ]
    # There need be no systemd where tests run.
    _, *others = answers[0].split("--psfleet--")
    return Reading.of("--psfleet--".join([UNIT, *others])), answers[1]


@as_root
def test_the_command_of_a_reading_gives_all_its_parts_on_a_host(written: Path) -> None:
    (written / "r1").mkdir()
    (written / "r1" / "chief0.out").write_text("the last line\n")
    reading, aged = told(written)
    assert (reading.progress.global_step, reading.progress.last_line) == (7, "the last line")
    assert reading.free_bytes == pytest.approx(shutil.disk_usage(written).free, rel=0.5)
    assert [record["event"] for record in reading.records] == ["restored"]
    assert age_of(aged, reading) == pytest.approx(time.time() - 1000, abs=60)


@as_root
@pytest.mark.parametrize("link", ["symbolic", "hard", "of a folder"])
def test_root_does_not_read_files_that_the_tasks_may_not_read(written: Path, link: str) -> None:
    secrets, run_directory = written.parent / "secrets", written / "runs" / "r1"
    run_directory.rename(secrets)
    (secrets / "chief0.out").write_text("a secret\n")
    files = [path for path in secrets.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o600)
    if link == "of a folder":
        for place in (run_directory, written / "r1"):
            place.symlink_to(secrets)
    else:
        (run_directory / "events").mkdir(parents=True)
        (written / "r1").symlink_to(run_directory)
        for path in files:
            place = run_directory / path.relative_to(secrets)
            place.symlink_to(path) if link == "symbolic" else os.link(path, place)
    reading, aged = told(written)
    assert (reading.progress.phase, reading.progress.last_line, reading.records) == ("starting", "", ())
    assert len(aged.splitlines()) == 1  # the time alone


def test_text_of_the_tasks_is_not_taken_for_output_of_systemd() -> None:
    reading = said(f'"--psfleet--{UNIT.replace("=active", "=failed")}--psfleet--\n', UNIT)
    assert reading.alive


def test_the_age_of_a_run_is_that_of_the_first_process_of_its_present_part() -> None:
    starts = [json.dumps({"event": "started", "wall": wall}) for wall in (100.0, 900.0, 950.0)]
    reading = Reading(Progress("training", elapsed=30.0), restarts=1)
    assert age_of("\n".join([*starts, "1000.0"]), reading) == 100.0
    assert age_of("1000.0\n", reading) == 30.0
    assert age_of("", reading) == 30.0


def test_progress_of_an_earlier_part_is_ignored_while_the_lead_is_alive() -> None:
    stale = Progress("stopped", wall=5.0, global_step=100)
    assert without_stale_progress(Reading(stale), stale).progress.phase == "starting"
    assert without_stale_progress(Reading(stale, alive=False), stale).progress.phase == "stopped"
    later = Reading(Progress("training", wall=6.0, global_step=100))
    assert without_stale_progress(later, stale) == later


def test_logs_are_listed_by_host() -> None:
    tasks = [{"name": "ps0", "host": "node1"}, {"name": "worker0", "host": "node1"}]
    assert log_places({**run(), "tasks": [*tasks, {"name": "worker1", "host": "node2"}]}, PATHS) == [
        "logs: node1:/var/log/psfleet/r1/<task>.out of ps0, worker0",
        "logs: node2:/var/log/psfleet/r1/<task>.out of worker1",
    ]

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from psfleet.watch.lead_reading import Reading
from psfleet.watch.live_block import log_line
from psfleet.watch.notices import STRAGGLER_POLLS, LeadRecords
from psfleet.watch.watched_run import WatchedRun
from tests.psfleet.watch.played_runs import MISSING, PlayedRun, decided_run, progress, steady_run

LOST_PS = """UnavailableError:
UNAVAILABLE: From /job:ps/replica:0/task:0:
Socket\x1b[2J closed
Additional GRPC error information from remote target /job:ps/replica:0/task:1 while calling RecvTensor:
[[{{node A}}]]"""


def record(event: str, number: int, **fields: object) -> dict[str, object]:
    return {"event": event, "pid": 1, "monotonic": float(number), **fields}


def test_a_straggler_and_its_recovery_are_each_reported_once() -> None:
    run = steady_run(3)
    (slow,) = run.goes_on(60, [50, 50, 5])
    assert slow == "worker2 is slow: 5 steps/s (median of the others: 50/s)"
    (quick,) = run.goes_on(60, [50, 50, 45])
    assert quick == "worker2 keeps up again: 45 steps/s (median of the others: 50/s)"
    assert [note.good for note in run.notes] == [False, True]


def test_short_pauses_make_no_straggler() -> None:
    run = steady_run(3)
    # Many short pauses in succession do not make a straggler, either.
    for _ in range(6):
        assert run.goes_on(3, [50, 50, 0]) + run.goes_on(15, [50, 50, 50]) == []


def test_a_worker_that_takes_no_step_stands_still() -> None:
    run = steady_run(2)
    (note,) = run.goes_on(30, [50, 0])
    assert note.startswith("worker1 stands still: 0 steps/s")


def test_workers_that_are_all_slow_are_no_stragglers() -> None:
    run = steady_run(3)
    assert run.goes_on(60, [2, 2, 2]) == []


def test_a_worker_near_the_limit_is_reported_once() -> None:
    run = steady_run(3)
    run.goes_on(20, [50, 50, 24])
    for _ in range(4):
        run.goes_on(2 * STRAGGLER_POLLS, [50, 50, 27])
        run.goes_on(2 * STRAGGLER_POLLS, [50, 50, 24])
    assert len(run.notes) == 1


def test_a_synchronous_run_counts_gradients() -> None:
    run = steady_run(3, replication="sync", replicas_to_aggregate=2)
    (note,) = run.goes_on(30, [50, 50, 1])
    assert note == "worker2 is slow: 1 gradients/s (median of the others: 50/s)"


def test_each_restart_is_reported_with_the_number_of_restarts() -> None:
    run = PlayedRun(decided_run(2))
    counts = [0, 0], [0, 1], [0, 1], [0, 3]
    heard = [note for restarts in counts for note in _restarted(run, restarts)]
    assert heard == ["worker1 was restarted (1 time so far)", "worker1 was restarted (3 times so far)"]


def test_earlier_restarts_still_count_after_a_restart_of_the_chief() -> None:
    run = PlayedRun(decided_run(2))
    _restarted(run, [0, 2])
    assert _restarted(run, [0, 0], lead_restarts=1) == ["worker0 was restarted (1 time so far)"]
    assert _restarted(run, [0, 1], lead_restarts=1) == ["worker1 was restarted (3 times so far)"]


def test_a_standstill_is_reported_once_with_the_missing_tasks() -> None:
    run = steady_run(2)
    (note,) = run.goes_on(120, [0, 0], phase="waiting", missing=[MISSING])
    assert note == (
        "no step for 0:30, still at step 2000: waiting for worker1 at 10.0.0.2:2222 (connection refused)"
    )
    (again,) = run.goes_on(5, [50, 50])
    assert again == "steps go on after 2:01, at step 2100"


def test_a_lead_that_stops_reporting_progress_is_reported() -> None:
    run = steady_run(2)
    assert run.goes_on(40, [0, 0], wall=1e9 + 20) == ["no step for 0:30, still at step 2000"]


def test_a_program_without_steps_stands_still_if_it_also_prints_nothing() -> None:
    run, printed = WatchedRun(decided_run(1, program={"release": "abc"})), 0
    notes = []
    for second in range(400):
        printed += second < 200
        now = replace(progress(last_step=0), last_line=f"epoch {printed}")
        # The hosts answer: no notice about silent hosts is wanted here.
        run.units.hosts = {}
        notes += [note.text for note in run.add_reading(Reading(now), float(second))]
    assert notes == ['no step for 2:00, still "epoch 200"']
    for second in range(400, 600):
        now = replace(progress(global_step=7), last_line=f"epoch {second}")
        notes += [note.text for note in run.add_reading(Reading(now), float(second))]
    assert notes[1:] == ["steps go on after 3:21, at step 7", "no step for 0:30, still at step 7"]


def told_of(lines: Sequence[str]) -> list[str]:
    """What people hear in so many seconds of a program without steps that printed these lines last."""
    run = WatchedRun(decided_run(1, program={"release": "abc"}))
    run.units.hosts = {}
    readings = (Reading(replace(progress(last_step=0), last_line=last)) for last in lines)
    return [note.text for at, one in enumerate(readings) for note in run.add_reading(one, float(at))]


def test_a_program_that_prints_the_same_lines_again_and_again_stands_still() -> None:
    polls = ["Scanning workers for devices: 2 total workers", "looking again", ""]
    assert told_of([*["begins"] * 30, *(polls * 50)]) == ['no step for 2:00, still "looking again"']
    assert told_of([*(f"read {count} files" for count in range(400))]) == []


@pytest.mark.parametrize(
    "line",
    [
        "INFO:tensorflow:Waiting for model to be ready.  Ready_for_local_init_op:  None, ready: None",
        "psfleet, which looks at this program: it waits for variables that no task has initialised",
    ],
)
def test_a_standstill_without_a_chief_names_its_cause(line: str) -> None:
    (told,) = told_of([line] * 130)
    assert told.startswith(
        "no step for 2:00: the lead waits for variables that nobody initialises: is a task chief (is_chief)?"
    )


def test_a_program_is_no_standstill_while_another_task_than_the_lead_trains() -> None:
    run = WatchedRun(decided_run(1, program={"release": "abc"}))
    run.units.hosts, run.units.rates = {}, {"ps0": 3.0}
    readings = [run.add_reading(Reading(progress(last_step=0)), float(second)) for second in range(200)]
    assert not any(readings)


def test_a_program_without_any_output_is_reported() -> None:
    run = WatchedRun(decided_run(1, program={"release": "abc"}))
    run.units.hosts = {}
    notes = [run.add_reading(Reading(progress(last_step=0)), float(second)) for second in range(200)]
    assert [note.text for told in notes for note in told] == ["no step for 2:00, and nothing was printed"]


def test_long_steps_are_no_standstill() -> None:
    run = PlayedRun(decided_run(2))
    # Ten steps of ten seconds are a hundred.
    run.goes_on(400, [0.05, 0.05])
    assert run.goes_on(80, [0, 0]) == []
    (note,) = run.goes_on(40, [0, 0])
    assert note.startswith("no step for 1:3")


def test_waiting_tasks_before_the_first_step_are_no_standstill() -> None:
    run = PlayedRun(decided_run(2))
    assert run.goes_on(300, [0, 0], phase="waiting", missing=[MISSING]) == []
    (note,) = run.goes_on(130, [0, 0])
    assert note.startswith("no step for 2:00")


def test_new_records_of_the_lead_are_reported_once_and_old_ones_are_not() -> None:
    run = PlayedRun(decided_run(2))
    old = [record("checkpointed", 1, global_step=40), record("recovering", 2, reason="old")]
    assert run.goes_on(5, [50, 50], records=old) == []
    assert run.view.now.saved_step == 40
    new = [
        *old,
        record("checkpoint_failed", 3, global_step=400, reason="No space left on device"),
        record("recovering", 4, reason=LOST_PS),
        record("checkpoint_damaged", 5, global_step=300, path="a/model.ckpt-300", reason="checksum"),
        record("restored", 6, global_step=40, checkpoint="model.ckpt-40"),
    ]
    assert run.goes_on(5, [0, 0], records=new) == [
        "the checkpoint at step 400 could not be saved: No space left on device",
        "worker0 lost its connection to ps1 and connects again: UnavailableError: Socket [2J closed",
        "model.ckpt-300 is damaged and is passed over: checksum",
        "worker0 restored the checkpoint of step 40; about 460 steps are lost, because model.ckpt-300 "
        "cannot be read",
    ]
    assert [note.good for note in run.notes] == [False, False, False, True]
    at = {"checkpoint": "model.ckpt-40", "checkpoint_step": 40, "fingerprint": "a"}
    alone = [*new, record("ps_restored", 7, global_step=90, task="ps1", **at)]
    assert run.goes_on(5, [45, 45], records=alone) == [
        "ps1 alone restored its part of the checkpoint of step 40; training goes on from step 90"
    ]


def test_records_stay_old_after_a_reading_without_records() -> None:
    run = PlayedRun(decided_run(2))
    old = [record("recovering", 2, reason="old")]
    assert [run.goes_on(1, [50, 50], records=shown) for shown in (old, [], old)] == [[], [], []]


def test_memory_for_records_is_bounded() -> None:
    told = LeadRecords("worker0")
    tracemalloc.start()
    for number in range(100):
        list(told.update([record("other", number, pid=f"{number}" * 50_000)], 1))
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()


def test_a_reason_of_one_line_is_shown_and_shortened() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(5, [50, 50], records=[])
    lost = record("recovering", 1, reason="the host went away " + 200 * "x")
    (note,) = run.goes_on(1, [50, 50], records=[lost])
    assert note.startswith("worker0 lost its session and connects again: the host went away xxx")
    assert note.endswith("x...")


def test_a_run_that_starts_over_is_reported_with_the_lost_steps() -> None:
    run = PlayedRun(decided_run(2))
    run.goes_on(5, [50, 50], records=[])
    (note,) = run.goes_on(1, [0, 0], records=[record("initialised", 9, global_step=0)])
    assert note == "training begins anew: there was no checkpoint, and about 500 steps are lost"


def _restarted(run: PlayedRun, restarts: list[int], lead_restarts: int = 0) -> list[str]:
    run.seconds += 1
    reading = Reading(progress(wall=float(run.seconds), restarts=restarts), restarts=lead_restarts)
    return [note.text for note in run.view.add_reading(reading, float(run.seconds))]


def test_a_full_disk_is_reported_instead_of_a_standstill() -> None:
    run, now = steady_run(2), progress(wall=1e9, global_step=2000, last_step=9000)
    heard = [run.view.add_reading(Reading(now, free_bytes=0.0), 20.0 + second) for second in range(50)]
    (told,) = [note.text for notes in heard for note in notes if "does not answer" not in note.text]
    assert told.startswith("No space left for the run on node0")


def test_a_full_disk_is_reported_once_and_stays_in_the_block() -> None:
    run = WatchedRun(decided_run(1))
    heard = []
    for second, free in enumerate((5e9, 999_999, 0, 1_500_000, None, 5e9, 5e9)):
        heard += [note.text for note in run.add_reading(Reading(progress(), free_bytes=free), float(second))]
        assert ("No space left on node0" in log_line(run.now)) == (1 <= second < 5)
    lost = "no checkpoints until there is space again; records wait, and progress is not shown"
    assert heard == [f"No space left for the run on node0: {lost}", "there is space again on node0"]


def test_a_worker_that_is_not_in_the_run_does_not_stand_still() -> None:
    run = steady_run(3)
    run.view.units.empty.add("worker2")
    assert run.goes_on(60, [50, 50, 0]) == []
    (slow,) = run.goes_on(60, [50, 5, 0])
    assert slow.startswith("worker1 is slow: 5 steps/s (median of the others: 50/s)")

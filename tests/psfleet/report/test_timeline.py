"""The order of events in the report."""

from pathlib import Path

from psfleet.evidence.reading import read_run
from psfleet.report.cluster_map import host_boxes
from psfleet.report.timeline import MOST_LANES, Row, happenings, lanes, rows
from tests.psfleet.report.made_runs import (
    make_plan,
    make_run,
    nonces,
    ps_records,
    started,
    worker_records,
    write,
)

PLAN = make_plan()
PS, CHIEF, OTHER = PLAN.tasks


def told(folder: Path, task: str) -> list[tuple[str, int | None]]:
    return [(one.event, one.step) for one in happenings(read_run(folder)) if one.task == task]


def row(folder: Path, event: str) -> Row:
    (found,) = [one for one in rows(read_run(folder)) if one.event == event]
    return found


def test_events_are_ordered_by_global_step_and_equal_events_of_tasks_share_a_row(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    assert [(one.event, one.tasks) for one in rows(read_run(folder))] == [
        ("started", "ps0, worker0, worker1"),
        ("initialised", "worker0"),
        ("peers_ready", "worker0, worker1"),
        ("evaluated", "worker0"),
        ("finished", "worker0, worker1"),
        ("finished", "ps0"),
    ]
    assert row(folder, "evaluated").text == "evaluated: weight 2, bias 10"
    assert row(folder, "evaluated").steps == "80"


def test_events_after_a_restored_checkpoint_stay_after_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    records = worker_records(PLAN, 0, 4)
    again = (
        {"event": "recovering", "reason": "ps0 went away"},
        {"event": "restored", "checkpoint": "/x/model-20"},
    )
    write(folder, PLAN, CHIEF, [*records[:5], again[0], {**again[1], "global_step": 20}, *records[5:]])
    order = [one.event for one in happenings(read_run(folder)) if one.task == "worker0"]
    assert order == [
        "started",
        "initialised",
        "peers_ready",
        "recovering",
        "restored",
        "evaluated",
        "finished",
    ]
    assert told(folder, "worker0")[3:5] == [("recovering", 40), ("restored", 20)]
    assert row(folder, "recovering").grave
    assert row(folder, "recovering").steps == "about 40"
    assert row(folder, "restored").text == "restored the checkpoint model-20; 20 steps lost"


def test_a_ps_that_restored_alone_is_named_and_the_steps_go_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    records = worker_records(PLAN, 0, 4)
    at = {"global_step": 40, "checkpoint": "/x/model-20", "checkpoint_step": 20, "fingerprint": "a"}
    alone = {"event": "ps_restored", "task": "ps0", **at}
    write(folder, PLAN, CHIEF, [*records[:5], {"event": "recovering", "reason": "lost"}, alone, *records[5:]])
    assert told(folder, "worker0")[3:5] == [("recovering", 40), ("ps_restored", 40)]
    assert row(folder, "ps_restored").text == "restored on ps0 alone its part of the checkpoint model-20"


def test_losses_of_the_cluster_are_ordered_before_the_restore_at_a_lower_step(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    lost = {"event": "recovering", "reason": "ps0 went away"}
    restored = {"event": "restored", "checkpoint": "/x/model-20", "global_step": 20}
    ready = {"event": "peers_ready", "global_step": 20, **nonces(PLAN)}
    chief, other = worker_records(PLAN, 0, 4), worker_records(PLAN, 1, 4)
    write(folder, PLAN, CHIEF, [*chief[:6], lost, restored, ready, *chief[6:]])
    write(folder, PLAN, OTHER, [*other[:4], lost, ready, *other[5:]])
    assert [(one.event, one.tasks) for one in rows(read_run(folder))][3:6] == [
        ("recovering", "worker1, worker0"),
        ("restored", "worker0"),
        ("peers_ready", "worker0, worker1"),
    ]


def test_the_restart_of_a_ps_is_placed_by_the_time_since_its_start(tmp_path: Path) -> None:
    """The clock of the ps is an hour ahead, which must not matter."""
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    times = (3601.0, 3603.1, 3630.0)
    records = [ps_records()[0], started(2, pid=7), ps_records()[1]]
    records[2]["pid"] = 7
    write(folder, PLAN, PS, [{**one, "monotonic": at} for one, at in zip(records, times, strict=True)])
    assert told(folder, "ps0") == [("started", None), ("started", 60), ("finished", 80)]
    events = [(one.task, one.event) for one in happenings(read_run(folder))]
    assert events.index(("ps0", "started"), 1) > events.index(("worker0", "peers_ready"))
    lane = lanes(read_run(folder), ())[0][0]
    assert lane.lost == ((0.0, 2.1),) or abs(lane.lost[0][1] - 2.1) < 1e-6


def test_successive_checkpoints_share_a_row(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=4)
    records = worker_records(PLAN, 0, 4)
    saved = [
        {
            "event": "checkpointed",
            "global_step": 10 * n,
            "path": f"/c/model-{n}",
            "seconds": 0.1,
            "monotonic": 3.0,
        }
        for n in range(1, 6)
    ]
    write(folder, PLAN, CHIEF, [*records[:4], *saved, *records[4:]])
    assert row(folder, "checkpointed").steps == "10 to 50"
    assert row(folder, "checkpointed").text == "wrote 5 checkpoints, the last: model-5"


def test_only_notable_tasks_of_many_have_lanes(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", make_plan(workers=40), windows=2)
    drawn, others = lanes(read_run(folder), ["worker33"])
    assert [lane.name for lane in drawn] == ["ps0", "worker0", "worker33"]
    assert others == 38
    every, others = lanes(read_run(make_run(tmp_path / "few", make_plan(workers=11), windows=2)), [])
    assert (len(every), others) == (MOST_LANES, 0)


def test_a_lead_without_records_is_not_counted_as_drawn(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", make_plan(workers=40), windows=2)
    (folder / "events/worker0.jsonl").unlink()
    drawn, others = lanes(read_run(folder), ["worker33"])
    assert ([lane.name for lane in drawn], others) == (["ps0", "worker33"], 38)


def test_the_evaluator_comes_last(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "made", PLAN, windows=2)
    whose = {"job": "evaluator", "index": 0}
    metrics = {"metrics": {"weight": 2.0}, "fingerprint": "0" * 16, "examples": 7}
    events = [
        started(99),
        {"event": "restored", "checkpoint": "/x/model-40", "global_step": 40},
        {"event": "evaluated", "global_step": 40, **metrics},
        {"event": "finished", "reason": "evaluated"},
    ]
    write(folder, PLAN, OTHER, [{**one, **whose} for one in events])
    (folder / "events/worker1.jsonl").rename(folder / "events/evaluator0.jsonl")
    write(folder, PLAN, OTHER, worker_records(PLAN, 1, 2))
    assert [(one.event, one.tasks) for one in rows(read_run(folder))][-5:] == [
        ("finished", "ps0"),
        *((event, "evaluator0") for event in ("started", "restored", "evaluated", "finished")),
    ]
    (box,) = [box for host in host_boxes(read_run(folder)) for box in host.tasks if box.job == "evaluator"]
    assert {lane.name for lane in lanes(read_run(folder), ())[0]} == {"ps0", "worker0", "worker1"}
    assert (box.name, box.kind, box.state) == ("evaluator0", "good", "after the run: evaluated")

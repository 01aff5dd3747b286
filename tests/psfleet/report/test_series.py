"""The numbers that the charts draw."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from psfleet.evidence.reading import read_run
from psfleet.evidence.recorded_run import Run
from psfleet.report import series, timeline
from psfleet.report.series import Line, Point
from tests.psfleet.report.made_runs import (
    SECONDS_PER_WINDOW,
    make_plan,
    make_run,
    step,
    worker_records,
    write,
    write_evaluations,
)

PLAN = make_plan()
WORKER1 = PLAN.tasks[2]


def runs_of(folder: Path, records: list[dict[str, object]]) -> Run:
    """The made run, in which worker 1 left these records."""
    write(folder, PLAN, WORKER1, records)
    return read_run(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "made", PLAN, windows=4)


def points(line: Line) -> list[Point]:
    return [point for point in line.points if math.isfinite(point[0])]


def test_loss_is_drawn_over_the_global_step_after_each_window(folder: Path) -> None:
    (zero, one) = series.loss_curves(read_run(folder), ()).lines
    assert (zero.name, one.name) == ("worker0", "worker1")
    assert points(zero) == [
        (20.0, 100.0),
        (40.0, 90.0),
        (60.0, pytest.approx(81.0)),
        (80.0, pytest.approx(72.9)),
    ]


def test_a_line_is_interrupted_if_the_global_step_went_back(folder: Path) -> None:
    records = worker_records(PLAN, 1, 4)
    back = step(1, 2, 1, local_step=30)
    run = runs_of(folder, [*records[:5], back, *records[5:]])
    line = series.loss_curves(run, ()).lines[1]
    steps = [x for x, _ in line.points]
    assert steps[:3] == [20.0, 40.0, 60.0] and math.isnan(steps[3]) and steps[4] == 40.0


def test_speed_is_steps_per_second_of_each_window_from_its_start_to_its_end(folder: Path) -> None:
    line = series.rate_curves(read_run(folder), ()).lines[1]
    assert points(line)[:3] == [
        (0.0, 10 / SECONDS_PER_WINDOW),
        (SECONDS_PER_WINDOW, 10 / SECONDS_PER_WINDOW),
        (SECONDS_PER_WINDOW, 10 / SECONDS_PER_WINDOW),
    ]


def test_the_speed_is_interrupted_by_a_lost_cluster_and_not_by_a_checkpoint(folder: Path) -> None:
    records = worker_records(PLAN, 1, 4)
    saved = {"event": "checkpoint_failed", "global_step": 30, "reason": "full", "monotonic": 3.0}
    lost = {"event": "recovering", "reason": "ps0 went away", "monotonic": 3.5}
    run = runs_of(folder, [*records[:3], saved, records[3], records[4], lost, *records[5:]])
    breaks = [math.isnan(x) for x, _ in series.rate_curves(run, ()).lines[1].points]
    assert breaks == [True, True, *6 * [False], True, False, False]


def test_metrics_are_drawn_over_the_global_step_of_each_evaluation(folder: Path) -> None:
    found: list[tuple[int, Mapping[str, object]]] = [
        (20, {"loss": 9, "bias": 1.0}),
        (60, {"loss": 4, "bias": 1.0}),
        (80, {"loss": 2, "reachable": 1}),
    ]
    write_evaluations(folder, PLAN, found)
    lines = series.evaluations(read_run(folder))
    assert {name: line.points for name, line in lines.items()} == {"loss": [(20.0, 9), (60.0, 4), (80.0, 2)]}


def test_the_evaluation_of_the_final_model_alone_is_no_series(folder: Path) -> None:
    assert series.evaluations(read_run(folder)) == {}
    write_evaluations(folder, PLAN, [(80, {"loss": 2})])
    assert series.evaluations(read_run(folder)) == {}


def test_the_series_is_interrupted_where_the_run_went_on_from_an_earlier_step(folder: Path) -> None:
    steps = (20, 60, 40, 80)
    write_evaluations(folder, PLAN, [(step, {"loss": step}) for step in steps])
    (line,) = series.evaluations(read_run(folder)).values()
    assert [x for x, _ in line.points if math.isfinite(x)] == list(steps)
    assert [math.isnan(x) for x, _ in line.points].index(True) == 2


@pytest.mark.parametrize("value", [None, 10**18, -(10**18)])
def test_what_cannot_be_drawn_of_an_evaluation_is_left_out(folder: Path, value: object) -> None:
    write_evaluations(
        folder, PLAN, [(20, {"loss": 1}), (10**18, {"loss": 5}), (60, {"loss": value}), (80, {"loss": 2})]
    )
    (line,) = series.evaluations(read_run(folder)).values()
    assert points(line) == [(20.0, 1), (80.0, 2)]


def test_an_offset_of_a_hosts_clock_changes_nothing(folder: Path) -> None:
    before = series.rate_curves(read_run(folder), ()), timeline.rows(read_run(folder))
    shifted = [
        {**record, "monotonic": float(str(record["monotonic"])) + 600, "wall": 1.7e9}
        for record in worker_records(PLAN, 1, 4)
    ]
    after = runs_of(folder, shifted)
    assert repr((series.rate_curves(after, ()), timeline.rows(after))) == repr(before)


def test_times_continue_after_a_reboot_of_the_host(folder: Path) -> None:
    records = worker_records(PLAN, 1, 4)
    for place, record in enumerate(records[4:]):
        record["monotonic"] = 0.1 + SECONDS_PER_WINDOW * place  # a new clock, from the third window on
    line = series.rate_curves(runs_of(folder, records), ()).lines[1]
    times = [x for x, _ in points(line)]
    assert times == sorted(times)
    assert times[-1] < 10


def test_many_workers_are_drawn_as_a_band_and_only_notable_ones_as_lines() -> None:
    steady = [Line(f"worker{index}", ((0.0, 1.0 + index), (100.0, 1.0 + index))) for index in range(13)]
    curves = series._curves(steady, ["worker12"])
    assert [line.name for line in curves.lines] == ["worker12"]
    assert curves.band is not None
    assert (curves.band.low, curves.band.middle, curves.band.high) == ((1.0, 1.0), (7.0, 7.0), (13.0, 13.0))
    assert len(series._curves(steady[:12], []).lines) == 12


def test_a_line_of_many_points_is_averaged_to_a_bounded_length() -> None:
    course = tuple((float(x), float(x % 2)) for x in range(6000))
    (line,) = series._curves([Line("worker0", (*course, (math.nan, math.nan), (6001.0, 5.0)))], ()).lines
    assert 500 < len(line.points) < 700
    assert line.points[0] == (5.0, 5 / 11), "the mean of the first eleven"
    assert sum(math.isnan(x) for x, _ in line.points) == 1


def test_a_band_is_computed_from_the_mean_of_each_worker_in_each_interval() -> None:
    noisy = Line("worker0", ((0.0, 0.0), (0.1, 20.0), (100.0, 10.0)))
    others = [Line(f"worker{index}", ((0.0, 10.0), (100.0, 10.0))) for index in range(1, 13)]
    band = series._curves([noisy, *others], []).band
    assert band is not None
    assert (band.low, band.high) == ((10.0, 10.0), (10.0, 10.0))


def test_non_finite_losses_are_listed_and_not_drawn(folder: Path) -> None:
    records = worker_records(PLAN, 1, 4)
    records[3] |= {"loss": None, "loss_mean": None}
    run = runs_of(folder, records)
    assert series.losses_not_finite(run) == (40.0,)
    assert [x for x, _ in points(series.loss_curves(run, ()).lines[1])] == [20.0, 60.0, 80.0]


def test_staleness_has_a_bar_for_each_power_of_two() -> None:
    buckets = series.staleness_buckets({"staleness": {"histogram": [5, 4, 3, 2, 1]}})
    assert buckets == (("0", 5), ("1", 4), ("2-3", 3), ("4-7", 2), ("8-15", 1))
    assert series.staleness_buckets({}) == series.staleness_buckets({"staleness": None}) == ()


def test_notable_workers_are_stragglers_and_then_restarted_ones(folder: Path) -> None:
    records = worker_records(PLAN, 1, 4)
    run = runs_of(folder, [*records[:3], {**records[0], "pid": 7}])
    assert series.notable_workers(run, {"stragglers": ["worker0"]}) == ("worker0", "worker1")

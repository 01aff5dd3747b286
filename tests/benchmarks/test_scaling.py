"""What `make bench-scale` runs, and what it says of the curves that it measured."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks import scaling
from benchmarks.figures import Figures
from benchmarks.network import Limits
from benchmarks.results import SECONDS, SPEED
from benchmarks.rows import ROWS, WORKLOADS
from benchmarks.scaling import cores_of, curves_of, options_of, setups_of, title_of
from benchmarks.scaling_page import Curve, Point, exhausted_resources, page, picture, sentences

MLP, CNN, WIDE = WORKLOADS[:3]
NAMED = {row.name: row for row in ROWS}
PSFLEET, SYNC = NAMED["psfleet"], NAMED["psfleet_sync"]


def measured(speed: float, seconds: float = math.inf, **other: float) -> Figures:
    """Figures of a run in which nothing was used up."""
    links = {f"{job}_megabits_{way}": 1.0 for job in ("ps", "worker") for way in ("in", "out")}
    cores = {"cores_of_a_worker": 0.1, "cores_of_a_ps": 0.1, "cores_of_all": 0.3, "cores_of_others": 0.0}
    return {SPEED: speed, SECONDS: seconds, "examples_to_loss": speed * seconds, **links, **cores, **other}


ALONE = measured(100.0, 60.0, cores_of_a_worker=0.2)


def curve(*speeds: float, megabits: float = 200, **last: float) -> Curve:
    """A curve with 1, 2, 4, ... workers of 0.2 core; `last` are other figures of its last point."""
    points = [Point(2**place, 0.2, 0.4, measured(speed, 30.0)) for place, speed in enumerate(speeds)]
    points[-1].figures.update(last)
    return Curve(CNN, "psfleet", int(megabits), points, ALONE)


@pytest.fixture
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "CORES", 2)


@pytest.mark.usefixtures("_two_cores")
def test_a_round_has_one_process_of_each_model_and_then_its_curves() -> None:
    setups = list(setups_of([MLP, CNN], [PSFLEET], [1, 8], [1000, 200], 0.2))
    assert [title_of(setup) for setup in setups[:5]] == [
        "MLP 784-100-10, one process",
        "MLP 784-100-10, 1,000 Mbit/s, psfleet, 1 worker",
        "MLP 784-100-10, 1,000 Mbit/s, psfleet, 8 workers",
        "MLP 784-100-10, 200 Mbit/s, psfleet, 1 worker",
        "MLP 784-100-10, 200 Mbit/s, psfleet, 8 workers",
    ]
    assert [setup.workload for setup in setups[5:]] == [CNN] * 5
    assert setups[0].limits == Limits(None, {"worker0": 0.2})
    assert setups[2].limits.megabits == 1000
    assert all(setup.row.flags["threads"] == 1 for setup in setups)


@pytest.mark.usefixtures("_two_cores")
def test_a_ps_gets_what_the_workers_leave_and_at_most_a_core() -> None:
    assert cores_of(PSFLEET.with_workers(2), 0.2) == {"ps0": 1.0, "worker1": 0.2, "worker0": 0.2}
    assert cores_of(PSFLEET.with_workers(8), 0.2)["ps0"] == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"16 workers of 0\.2 core and 1 ps are too many for 2 cores"):
        cores_of(PSFLEET.with_workers(16), 0.2)


def test_a_synchronous_step_needs_all_workers_of_the_row() -> None:
    scaled = SYNC.with_workers(8)
    assert (scaled.workers, scaled.batches, scaled.flags["replicas_to_aggregate"]) == (8, 8, 8)
    assert PSFLEET.with_workers(8).flags == PSFLEET.flags


@pytest.mark.usefixtures("_two_cores")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--models=vgg"], "'vgg' is none of mlp, cnn, wide"),
        (["--workers=0,1"], "0 is not above 0"),
        (["--workers=two"], "invalid"),
        (["--workers=16"], "too many for 2 cores"),
        (["--rows=alone"], "'alone' is none of psfleet"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: Sequence[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(arguments)
    assert problem in capsys.readouterr().err


@pytest.mark.usefixtures("_two_cores")
def test_options_choose_a_part() -> None:
    options = options_of(["--models=cnn", "--workers=8,2,2", "--links=50", "--rows=tutorial,psfleet"])
    assert options.models == [CNN]
    assert options.workers == [2, 8]
    assert options.links == [50]
    assert [row.name for row in options.rows] == ["tutorial", "psfleet"]


@pytest.mark.usefixtures("_two_cores")
def test_curves_have_the_medians_of_the_rounds_and_one_process_of_the_same_model() -> None:
    setups = list(setups_of([MLP], [PSFLEET], [1, 2], [1000], 0.2))
    rounds = {
        0: {0: measured(100), 1: measured(300), 2: measured(200)},
        1: {0: measured(90)},
        2: {0: measured(180)},
    }
    (found,) = curves_of(setups, rounds)
    assert found.alone[SPEED] == 200
    assert [(point.workers, point.worker_cores, point.ps_cores) for point in found.points] == [
        (1, 0.2, 1.0),
        (2, 0.2, 1.0),
    ]
    assert found.gain(found.points[1]) == 0.9
    assert curves_of(setups, {1: rounds[1]}) == []


def test_a_curve_bends_where_a_worker_brings_much_less_than_before() -> None:
    assert [point.workers for point in curve(100, 190, 340).bends()] == []
    assert [point.workers for point in curve(60, 118, 180, 300).bends()] == [1, 4]
    # Slowly, but all the same.
    assert [point.workers for point in curve(95, 165, 290, 560).bends()] == [4]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"cores_of_a_ps": 0.38}, ["a ps uses 0.38 of its 0.40 core"]),
        ({"ps_megabits_out": 190.0}, ["the link of a ps carries 190 of 200 Mbit/s out"]),
        (
            {"worker_megabits_in": 90.0, "worker_megabits_out": 95.0},
            ["a worker's bytes, one direction after the other, take 92% of its time"],
        ),
        (
            {"cores_of_a_worker": 0.19},
            ["a worker uses 0.19 of its 0.20 core, and 1.90 times the CPU of one process for an example"],
        ),
        ({}, []),
    ],
)
def test_the_reason_of_a_bend_is_what_was_used_up_there(
    figures: dict[str, float], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.scaling_page.CORES", 8)
    found = curve(100, 100, **figures)
    assert exhausted_resources(found, found.points[-1]) == words
    text = sentences(found)
    assert "Bend at 2 workers (0.50 for each): " in text
    assert (words or ["neither cores nor links are used up"])[0] in text


def test_a_machine_that_has_no_cores_left_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.scaling_page.CORES", 2)
    found = curve(100, 100, cores_of_others=1.6)
    assert exhausted_resources(found, found.points[-1]) == [
        "all tasks and others use 1.90 of this machine's 2 cores, which separate machines would not share"
    ]


def test_the_page_has_a_row_for_each_point_and_the_loss_beside_that_of_one_process() -> None:
    never = replace(curve(100, 190), workload=WIDE)
    never.points[-1].figures[SECONDS] = math.inf
    found = curve(100, 190, examples_to_loss=9000.0)
    text = page({"cores": 2}, {"share": 0.2}, [found, never])
    assert "| one process |  | 0.20, 0.20 |  |  |  | 100 |  |  | 60.0 |  |  |" in text
    cells = ["2", "0.20, 0.10", "0.40, 0.10", "1, 1", "1, 1", "190", "1.90", "0.95", "30.0", "0.50", "1.50"]
    assert f"| psfleet, 200 Mbit/s | {' | '.join(cells)} |" in text
    assert "1 worker 1.00 times and 2 workers 1.90 times the examples/s of one process. No bend. " in text
    assert "To loss 0.25, 2 workers: 0.50 of its seconds, with 1.50 times the examples." in text
    assert f"Seconds to loss {WIDE.loss:g}: 2 workers not reached, one process 60.0." in text
    assert text.count("psfleet, 200 Mbit/s") == 6


def test_the_picture_has_each_curve_and_the_ideal_line() -> None:
    drawn = picture([curve(100, 190), curve(100, 190, megabits=1000), replace(curve(100), workload=WIDE)])
    for words in ("psfleet, 200 Mbit/s", "psfleet, 1,000 Mbit/s", "ideal", "wide MLP, 20 MB: examples/s"):
        assert words in drawn


def test_the_picture_has_the_speeds_also_where_no_run_has_reached_the_loss() -> None:
    point = Point(2, 0.2, 0.4, measured(190.0))
    drawn = picture([Curve(WIDE, "psfleet", 200, [point], measured(100.0))])
    assert "psfleet, 200 Mbit/s" in drawn

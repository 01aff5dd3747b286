import pytest

from trainer.host.clock_checks import clock_check, clock_offset


def test_a_host_that_goes_with_the_controller_is_not_wrong_by_the_time_of_the_way() -> None:
    # Half a second there, ten seconds of looking, half a second back.
    assert clock_offset(100.0, 100.5, 110.5, 111.0) == (0.0, 0.5)


def test_all_that_a_slow_way_takes_is_uncertainty() -> None:
    ahead, uncertainty = clock_offset(100.0, 104.0, 105.0, 105.0)
    assert (ahead, uncertainty) == (2.0, 2.0)
    assert clock_check(ahead, uncertainty).state == "ok"


def test_a_clock_that_is_ahead_and_one_that_is_behind() -> None:
    assert clock_offset(100.0, 1000.5, 1001.5, 102.0)[0] == pytest.approx(900.0)
    assert clock_offset(1000.0, 100.5, 101.5, 1002.0)[0] == pytest.approx(-900.0)


@pytest.mark.parametrize(
    ("ahead", "uncertainty", "state", "words"),
    [
        (0.1, 0.3, "ok", "as the controller's (give or take 0.3 s)"),
        (-1.5, 0.2, "ok", "1.5 s behind the controller's"),
        (2.5, 0.2, "warning", "2.5 s ahead of the controller's"),
        (-90.0, 0.2, "warning", "90 s behind"),
        (3599.0, 0.2, "warning", "59 min ahead"),
        (3700.0, 200.0, "warning", "61 min ahead"),
        (-3700.0, 1.0, "failed", "61 min behind the controller's (give or take 1.0 s): SSH certificates"),
        (7.5 * 3600, 1.0, "failed", "7 h 30 min ahead"),
    ],
)
def test_what_a_difference_means(ahead: float, uncertainty: float, state: str, words: str) -> None:
    check = clock_check(ahead, uncertainty)
    assert check.state == state
    assert words in check.found
    assert bool(check.remedy) == (state != "ok")

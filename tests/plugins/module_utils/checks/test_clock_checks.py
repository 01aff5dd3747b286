import pytest

from plugins.module_utils.checks.clock_checks import REMEDY, clock_finding, clock_offset
from plugins.module_utils.host.check import Finding, State


@pytest.mark.parametrize(
    ("times", "ahead", "uncertainty"),
    [
        ((100.0, 100.5, 110.5, 111.0), 0.0, 0.5),  # as long there as back, with ten seconds of looking
        ((100.0, 104.0, 105.0, 105.0), 2.0, 2.0),
        ((100.0, 100.0, 105.0, 104.0), 0.5, 0.0),  # clocks that run unevenly
        ((100.0, 1000.5, 1001.5, 102.0), 900.0, 0.5),
        ((1000.0, 100.5, 101.5, 1002.0), -900.0, 0.5),
    ],
)
def test_the_offset_of_a_clock_is_uncertain_by_the_time_of_the_transfer(
    times: tuple[float, float, float, float], ahead: float, uncertainty: float
) -> None:
    assert clock_offset(*times) == (ahead, uncertainty)


DATED = ": records of its tasks are dated wrongly"
REFUSED = ": SSH certificates are signed for clocks that are at most an hour apart"


@pytest.mark.parametrize(
    ("ahead", "uncertainty", "state", "words"),
    [
        (0.1, 0.3, "ok", "as the controller's clock (give or take 0.3 s)"),
        (0.25, 0.25, "ok", "as the controller's clock (give or take 0.2 s)"),
        (-1.5, 0.2, "ok", "1.5 s behind the controller's clock (give or take 0.2 s)"),
        (0.5, 0.25, "ok", "0.5 s ahead of the controller's clock (give or take 0.2 s)"),
        (2.0, 0.0, "ok", "2.0 s ahead of the controller's clock (give or take 0.0 s)"),
        (10.0, 0.0, "warning", f"10 s ahead of the controller's clock (give or take 0.0 s){DATED}"),
        (-120.0, 9.0, "warning", f"2 min behind the controller's clock (give or take 9.0 s){DATED}"),
        (3700.0, 200.0, "warning", f"61 min ahead of the controller's clock (give or take 3 min){DATED}"),
        (3600.0, 0.0, "warning", f"60 min ahead of the controller's clock (give or take 0.0 s){DATED}"),
        (-3700.0, 1.0, "failed", f"61 min behind the controller's clock (give or take 1.0 s){REFUSED}"),
        (7200.0, 200.0, "failed", f"2 h 0 min ahead of the controller's clock (give or take 3 min){REFUSED}"),
        (
            3600 * 7200.5,
            0.0,
            "failed",
            f"7200 h 30 min ahead of the controller's clock (give or take 0.0 s){REFUSED}",
        ),
    ],
)
def test_a_clock_difference_is_judged_with_its_uncertainty(
    ahead: float, uncertainty: float, state: State, words: str
) -> None:
    assert clock_finding(ahead, uncertainty) == Finding(state, words, REMEDY if state != "ok" else "")

"""Findings, and the text of several together."""

from trainer.host.check import Check, checks_of, failed, joined, reasons_of, skipped
from trainer.host.wording import counted, dotted, first_of, grouped


def test_a_check_survives_a_round_trip_through_json() -> None:
    check = Check("driver", "failed", "it is old", "install another")
    told = {
        "name": "driver",
        "state": "failed",
        "found": "it is old",
        "remedy": "install another",
        "task": "",
    }
    assert (check.to_json(), Check.from_json(told)) == (told, check)
    assert Check.from_json({"name": "bus", "state": "ok", "found": "1"}) == Check("bus", "ok", "1")


def test_failed_findings_are_numbered_or_joined_without_repetition() -> None:
    several = [failed("a", "mend it"), failed("b", "mend it"), failed("b", "buy one")]
    assert joined(several) == failed("a; b", "mend it; buy one")
    findings = {"bus": several[0], "uvm": skipped("bus failed"), "gpus": several[2]}
    assert reasons_of(checks_of(findings)) == "1. a: mend it\n2. b: buy one"


def test_lists_and_counts_are_formatted() -> None:
    assert grouped([("b", 1), ("a", 2), ("b", 3)]) == {"b": [1, 3], "a": [2]}
    assert [counted(count, "time") for count in (0, 1, 2)] == ["0 times", "1 time", "2 times"]
    assert (counted(2, "ps"), dotted((2, 36))) == ("2 ps", "2.36")
    names = [str(number) for number in range(12)]
    assert first_of(names) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert first_of(names[:10]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert first_of(names[:3], 2, "; ") == "0; 1 and 1 more"

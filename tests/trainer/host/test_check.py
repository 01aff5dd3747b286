"""Findings, and the text of several together."""

from trainer.host.check import Check, checks_of, failed, joined, reasons_of, skipped
from trainer.host.wording import counted, dotted, first_of, grouped


def test_checks_come_back_from_what_a_module_answers() -> None:
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


def test_what_failed_is_numbered_or_joined_with_what_it_shares_once() -> None:
    several = [failed("a", "mend it"), failed("b", "mend it"), failed("b", "buy one")]
    assert joined(several) == failed("a; b", "mend it; buy one")
    findings = {"bus": several[0], "uvm": skipped("bus failed"), "gpus": several[2]}
    assert reasons_of(checks_of(findings)) == "1. a: mend it\n2. b: buy one"


def test_words_for_lists_and_counts() -> None:
    assert grouped([("b", 1), ("a", 2), ("b", 3)]) == {"b": [1, 3], "a": [2]}
    assert [counted(count, "time") for count in (0, 1, 2)] == ["0 times", "1 time", "2 times"]
    assert (counted(2, "ps"), dotted((2, 36))) == ("2 ps", "2.36")
    names = [str(number) for number in range(12)]
    assert first_of(names) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert first_of(names[:10]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert first_of(names[:3], 2, "; ") == "0; 1 and 1 more"

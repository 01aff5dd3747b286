"""Findings, and the text of several together."""

from trainer.host.check import Check, checks_of, failed, merge_findings, reasons_of, skipped


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
    assert merge_findings(several) == failed("a; b", "mend it; buy one")
    findings = {"bus": several[0], "uvm": skipped("bus failed"), "gpus": several[2]}
    assert reasons_of(checks_of(findings)) == "1. a: mend it\n2. b: buy one"

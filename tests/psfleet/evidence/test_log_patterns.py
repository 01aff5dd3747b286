"""Patterns in the logs of tasks: found, out of range, absent, or for tasks that do not exist."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence import log_patterns
from tests.psfleet.evidence.cases import do
from tests.psfleet.evidence.run_folders import checks, detail, remove, verdict_of

PATTERN = {"tasks": "worker*", "pattern": r"weight: ([0-9.]+)", "minimum": 1.8, "maximum": 2.2}
nothing_at_all = Path.exists


def test_a_pattern_that_every_log_matches_passes(silent: Path) -> None:
    verdict = verdict_of(silent, log_patterns=[PATTERN])
    assert verdict.verdict == "completed"
    assert "log_patterns" in checks(verdict, True)
    found = detail(verdict, "log_patterns")
    assert found.startswith(f"worker0: {PATTERN['pattern']} 'weight: ")
    evidence = json.dumps([check.evidence for check in verdict.checks])
    assert re.search(r'{"last_matches": {"worker0: weight: [^"]*": "weight: [.0-9]+", "worker1: ', evidence)


def print_more(run: Path, text: bytes) -> None:
    with (run / "logs" / "worker1.out").open("ab") as log:
        log.write(text)


def never_printed(run: Path) -> None:
    log = run / "logs" / "worker1.out"
    log.write_text(log.read_text().replace("weight", "height"))


@pytest.mark.parametrize(
    ("damage", "changes", "exit_code", "said"),
    [
        (
            do(print_more, b"\xff no UTF-8\nweight: 9.0\n"),
            {},
            1,
            "worker1 printed 'weight: 9.0': 9, expected from 1.8 to 2.2",
        ),
        (do(print_more, b"weight: .\n"), {}, 1, "'.' is not a finite number"),
        (never_printed, {}, 1, "worker1 never printed"),
        (never_printed, {"tasks": "worker0"}, 0, ""),
        (do(remove, "logs/worker1.out"), {}, 2, "logs/worker1.out: No such file"),
        (nothing_at_all, {"minimum": 3, "maximum": None}, 1, "expected at least 3; worker1 printed"),
        (nothing_at_all, {"minimum": None, "maximum": 1}, 1, "expected at most 1"),
        (nothing_at_all, {"minimum": None, "maximum": None}, 0, ""),
        (
            nothing_at_all,
            {"tasks": "wroker*"},
            2,
            "training_evidence_log_patterns[0].tasks is 'wroker*', and the run has no such task; it has ps0",
        ),
    ],
)
def test_logs_that_do_not_match_a_pattern_give_the_expected_verdict(
    silent: Path, damage: Callable[[Path], None], changes: dict[str, object], exit_code: int, said: str
) -> None:
    damage(silent)
    verdict = verdict_of(silent, log_patterns=[PATTERN | changes])
    assert verdict.exit_code == exit_code, verdict.failing
    assert said in detail(verdict, "log_patterns")
    if exit_code == 1:
        assert (
            verdict.headline == "NOT PROVEN: the program's logs do not match training_evidence_log_patterns"
        )


def test_a_very_long_line_is_searched_in_parts(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_patterns, "LONGEST_LINE", 10)
    print_more(silent, b"7" * 24)
    verdict = verdict_of(silent, log_patterns=[PATTERN | {"pattern": r"(7+)$"}])
    assert "worker1 printed '7777': 7777, expected" in detail(verdict, "log_patterns")


def test_patterns_also_apply_to_built_in_models(run: Path) -> None:
    (run / "logs").mkdir()
    (run / "logs/worker0.out").write_text("Training finished\n")
    asked = [{"tasks": "worker0", "pattern": "finished"}]
    assert verdict_of(run, log_patterns=asked).exit_code == 0
    assert verdict_of(run, log_patterns=[asked[0] | {"pattern": "never"}]).exit_code == 1


def test_the_search_for_an_exponential_pattern_is_abandoned(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_patterns, "SECONDS_FOR_A_LOG", 1)
    (silent / "logs" / "worker0.out").write_text("a" * 100 + "b\n")
    verdict = verdict_of(silent, log_patterns=[{"tasks": "worker0", "pattern": "(a+)+$"}])
    assert verdict.exit_code == 2
    assert "takes longer than 1 s for logs/worker0.out: ask for a simpler one" in detail(
        verdict, "log_patterns"
    )
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL

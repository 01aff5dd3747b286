"""The advice for each check that can fail, with the texts of advice.toml."""

from collections.abc import Iterable
from pathlib import Path

import tomllib

from psfleet.evidence.answer import Answer

_TEXTS = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))
_ADVICE = {check: text.format(**_TEXTS["words"]) for check, text in _TEXTS["advice"].items()}
_ELSEWHERE = "docs/verdict.md says what this check asks for."


def next_steps(failing: Iterable[Answer], problem: str, most: int = 6) -> tuple[tuple[str, str], ...]:
    """Return (names of checks, advice), with checks of the same advice together, at most `most` entries.

    If a `problem` keeps the whole run from being judged, return the advice about that.
    """
    if problem:
        return ((problem, _TEXTS["words"]["unreadable"]),)
    checks_of: dict[str, list[str]] = {}
    for answer in failing:
        checks_of.setdefault(_ADVICE.get(answer.check, _ELSEWHERE), []).append(answer.check.replace("_", " "))
    return tuple((", ".join(names), advice) for advice, names in checks_of.items())[:most]

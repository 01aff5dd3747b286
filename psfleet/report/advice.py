"""What to do next, for each check that can fail: advice.toml has the words."""

from collections.abc import Iterable
from pathlib import Path

import tomllib

from psfleet.evidence.answer import Answer

_TEXTS = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))
_ADVICE = {check: text.format(**_TEXTS["words"]) for check, text in _TEXTS["advice"].items()}
_ELSEWHERE = "docs/verdict.md says what this check asks for."


def next_steps(failing: Iterable[Answer], problem: str, most: int = 6) -> tuple[tuple[str, str], ...]:
    """Return for each check what to do, those with the same advice together: (names of checks, advice).

    With a `problem` that keeps the whole run from being judged, what to do about that.
    """
    if problem:
        return ((problem, _TEXTS["words"]["unreadable"]),)
    checks_of: dict[str, list[str]] = {}
    for answer in failing:
        checks_of.setdefault(_ADVICE.get(answer.check, _ELSEWHERE), []).append(answer.check.replace("_", " "))
    return tuple((", ".join(names), advice) for advice, names in checks_of.items())[:most]

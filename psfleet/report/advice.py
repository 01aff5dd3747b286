"""The advice for the checks that keep a run from being proven."""

from collections.abc import Iterable

from psfleet.evidence.answer import Answer
from psfleet.evidence.card import CARDS

_UNREADABLE = (
    "The run cannot be judged without it. Copy the whole folder again from where the run was collected, or "
    "collect the run again while its hosts have it: ansible-playbook train.yml -e run_id=ID."
)


def next_steps(failing: Iterable[Answer], problem: str, most: int = 6) -> tuple[tuple[str, str], ...]:
    """Return at most `most` pairs (names of checks, advice); checks with the same advice share a pair.

    The names are joined by ", ", and the pairs are in the order of `failing`. If a `problem` keeps the whole
    run from being judged, return one pair, with the problem in place of the names; "" means no problem.
    """
    if problem:
        return ((problem, _UNREADABLE),)
    checks_of: dict[str, list[str]] = {}
    for answer in failing:
        checks_of.setdefault(CARDS[answer.check].advice, []).append(answer.check.replace("_", " "))
    return tuple((", ".join(names), advice) for advice, names in checks_of.items())[:most]

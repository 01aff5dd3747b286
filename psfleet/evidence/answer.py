"""The answer of a check about a run: yes, no, or unknown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trainer.host.wording import counted as counted  # noqa: PLC0414 - answers are stated with it

# (the answer's text if the check finds nothing wrong, the figures that the check found)
Good = tuple[str, Mapping[str, object]]


@dataclass(frozen=True)
class Answer:
    """The answer of a check about a run.

    `check` is the name of the check. `ok` is True if the check found what it demands, False if the records
    contradict it, None if evidence is missing. `detail` is a line of text for people, and `evidence` has
    figures, {name: value}.
    """

    check: str
    ok: bool | None
    detail: str
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Findings:
    """The contradictions (`wrong`) and the missing evidence (`lacking`) that a check found.

    A check with a contradiction is false, whatever evidence is missing.
    """

    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)

    def add(self, finding: str, *, certain: bool) -> None:
        """Add `finding` to `wrong` (a contradiction) if it is `certain`, else to `lacking`."""
        (self.wrong if certain else self.lacking).append(finding)


def listed(parts: Iterable[str], most: int = 4) -> str:
    """Return the parts joined by "; "; "" for none.

    If there are more than `most`, return the first `most` and how many more there are.
    Example: listed("abcde", 3) -> "a; b; c; and 2 more".
    """
    every = list(parts)
    more = [f"and {len(every) - most} more"] if len(every) > most else []
    return "; ".join([*every[:most], *more])


def size(count: object) -> str:
    """Return a number of bytes in words, with three digits; "-" if `count` is not an integer.

    Example: size(12_540) -> "12.5 kB". The units are bytes, kB (1000 bytes), MB, GB and TB.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        return "-"
    amount = float(min(count, 10**18))
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"

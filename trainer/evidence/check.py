"""One answer about a run: yes, no, or that the records do not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Check:
    """`ok` is None where it cannot be decided; `detail` says why in a line, `evidence` has the figures."""

    check: str
    ok: bool | None
    detail: str
    evidence: Mapping[str, object] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """Return the check as verdict.json holds it."""
        return {"check": self.check, "ok": self.ok, "detail": self.detail, "evidence": dict(self.evidence)}


@dataclass
class Findings:
    """Collects what contradicts a check and what it lacks; a contradiction outweighs a lack."""

    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)

    def add(self, finding: str, *, certain: bool) -> None:
        """Take a finding as a contradiction where it is certain, else as a lack of evidence."""
        (self.wrong if certain else self.lacking).append(finding)

    def conclude(self, check: str, good: str, evidence: Mapping[str, object] | None = None) -> Check:
        """Return the check: false with all that is wrong, else unknown with all that lacks, else `good`."""
        ok = False if self.wrong else None if self.lacking else True
        return Check(check, ok, listed([*self.wrong, *self.lacking]) or good, evidence or {})


def listed(parts: Iterable[str], most: int = 4) -> str:
    """Join parts for people; with more than `most`, the first ones and how many follow."""
    every = list(parts)
    more = [f"and {len(every) - most} more"] if len(every) > most else []
    return "; ".join([*every[:most], *more])


def counted(count: int, thing: str) -> str:
    """Return "1 worker" or "2 workers"; ps has no plural of its own."""
    return f"{count} {thing}" if count == 1 or thing == "ps" else f"{count} {thing}s"

"""One answer about a run: yes, no, or that the records do not tell; and how a check is stated."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, ParamSpec

from trainer.host.wording import counted as counted  # noqa: PLC0414 - answers are stated with it

# What a check says of a run that it finds nothing wrong in, and its figures.
Good = tuple[str, Mapping[str, object]]
Asked = ParamSpec("Asked")


@dataclass(frozen=True)
class Answer:
    """`ok` is None where it cannot be decided; `detail` says why in a line, `evidence` has the figures."""

    check: str
    ok: bool | None
    detail: str
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Findings:
    """Collects what contradicts a check and what it lacks; a contradiction outweighs a lack."""

    wrong: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)

    def add(self, finding: str, *, certain: bool) -> None:
        """Take a finding as a contradiction where it is certain, else as a lack of evidence."""
        (self.wrong if certain else self.lacking).append(finding)


def check(question: Callable[Concatenate[Findings, Asked], Good]) -> Callable[Asked, Answer]:
    """Make a check of a function that collects findings: named like it, and true where it finds none.

    It is false with all that is wrong, else unknown with all that lacks, else true with what it returns.
    """

    @wraps(question)
    def answer(*asked: Asked.args, **by_name: Asked.kwargs) -> Answer:
        findings = Findings()
        good, evidence = question(findings, *asked, **by_name)
        ok = False if findings.wrong else None if findings.lacking else True
        detail = listed([*findings.wrong, *findings.lacking]) or good
        return Answer(question.__name__, ok, detail, evidence)

    return answer


def listed(parts: Iterable[str], most: int = 4) -> str:
    """Join parts for people; with more than `most`, the first ones and how many follow."""
    every = list(parts)
    more = [f"and {len(every) - most} more"] if len(every) > most else []
    return "; ".join([*every[:most], *more])


def size(count: object) -> str:
    """Return a number of bytes as people read it, such as 12.5 kB; a dash where it is not known."""
    if isinstance(count, bool) or not isinstance(count, int):
        return "-"
    amount = float(min(count, 10**18))
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"

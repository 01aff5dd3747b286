"""One thing that was looked at on a host: what was found, and what to do where it is not as it should be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

# "skipped": not looked at, because an earlier one of its chain failed or it does not apply; `found` says why.
State = Literal["ok", "warning", "failed", "skipped"]


class Finding(NamedTuple):
    """A check without its name, which those know who list it.

    `found` is one line of what is there, `remedy` what to do, naming the variable or the command; it is empty
    where the state is "ok" or "skipped".
    """

    state: State
    found: str
    remedy: str = ""


ok, warning = partial(Finding, "ok"), partial(Finding, "warning")
failed, skipped = partial(Finding, "failed"), partial(Finding, "skipped")


def joined(findings: Sequence[Finding]) -> Finding:
    """Return several findings of one state as one, what they have in common once."""
    found = "; ".join(dict.fromkeys(finding.found for finding in findings))
    return Finding(findings[0].state, found, "; ".join(dict.fromkeys(finding.remedy for finding in findings)))


@dataclass(frozen=True)
class Check:
    """A finding under its `name` (a column of doctor.yml's table, such as "driver").

    `task` is such as "worker0" where it is a task's, "" where it is the host's.
    """

    name: str
    state: State
    found: str
    remedy: str = ""
    task: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the check as a module's answer holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Check:
        """Return the check that `to_json` described; raises KeyError where a field is missing."""
        name, found, remedy = str(content["name"]), str(content["found"]), str(content.get("remedy", ""))
        return cls(name, content["state"], found, remedy)


def checks_of(findings: Mapping[str, Finding]) -> list[Check]:
    """Return findings as checks, in their order."""
    return [Check(name, *finding) for name, finding in findings.items()]


def reasons_of(checks: Iterable[Check]) -> str:
    """Return what failed, a numbered line each; empty where nothing did."""
    failures = [f"{check.found}: {check.remedy}" for check in checks if check.state == "failed"]
    return "\n".join(f"{number}. {failure}" for number, failure in enumerate(failures, 1))

"""Host checks: the result of one question about a host, and the remedy if something is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

# "skipped": the check was not made, because an earlier check failed or it does not apply; `found` says why.
State = Literal["ok", "warning", "failed", "skipped"]


class Finding(NamedTuple):
    """The result of a host check, without the check's name.

    `found` is a line that says what is there. `remedy` says what to do, with the variable or the command; it
    is "" if the state is "ok" or "skipped".
    """

    state: State
    found: str
    remedy: str = ""


ok, warning = partial(Finding, "ok"), partial(Finding, "warning")
failed, skipped = partial(Finding, "failed"), partial(Finding, "skipped")


def merge_findings(findings: Sequence[Finding]) -> Finding:
    """Return one finding with the state and the texts of all `findings`, which must have the same state.

    The texts are joined by "; "; equal texts appear once. Raises IndexError if there is no finding.
    """
    texts = "; ".join(dict.fromkeys(finding.found for finding in findings))
    return Finding(findings[0].state, texts, "; ".join(dict.fromkeys(finding.remedy for finding in findings)))


@dataclass(frozen=True)
class Check:
    """A finding with its `name`, which is a column of doctor.yml's table, such as "driver".

    `task` is the name of the task that the check is about, such as "worker0"; "" if it is about the host.
    """

    name: str
    state: State
    found: str
    remedy: str = ""
    task: str = ""

    def to_json(self) -> dict[str, str]:
        """Return {field: value} of the check's five fields, for a module's answer."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Check:
        """Return the check that a result of `to_json` describes, but with `task` always "".

        A missing remedy is "". Raises KeyError if the name, the state or what was found is missing.
        """
        name, found, remedy = str(content["name"]), str(content["found"]), str(content.get("remedy", ""))
        return cls(name, content["state"], found, remedy)


def checks_of(findings: Mapping[str, Finding]) -> list[Check]:
    """Return a check for each {name: finding}, in the same order; its `task` is ""."""
    return [Check(name, *finding) for name, finding in findings.items()]


def reasons_of(checks: Iterable[Check]) -> str:
    """Return the failed checks in numbered lines, such as "1. found: remedy"; "" if none failed.

    Warnings and skipped checks are left out.
    """
    failures = [f"{check.found}: {check.remedy}" for check in checks if check.state == "failed"]
    return "\n".join(f"{number}. {failure}" for number, failure in enumerate(failures, 1))

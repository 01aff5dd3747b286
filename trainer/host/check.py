"""One thing that was looked at on a host: what was found, and what to do where it is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

# "skipped": not looked at, because an earlier one of its chain failed or it does not apply; `found` says why.
State = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """A check by its `name` (a column of doctor.yml's table, such as "driver").

    `found` is one line of what is there, `remedy` what to do, naming the variable or the command; it is empty
    where the state is "ok" or "skipped".
    """

    name: str
    state: State
    found: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the check as a module's answer holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Check:
        """Return the check that `to_json` described; raises KeyError where a field is missing."""
        return cls(content["name"], content["state"], content["found"], content.get("remedy", ""))

"""Requires that psfleet acts as root on this host; otherwise it fails."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..step import Step

OPTIONS: dict[str, Any] = {}

RETURN = ""


def run(step: Step) -> None:
    """Take the step."""
    if user := os.geteuid():
        step.fail_json(msg=f"the user that becomes root there has the number {user}; expected 0")
    step.exit_json()

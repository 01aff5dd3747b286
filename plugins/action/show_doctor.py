"""Show what was found on every host as a table for people, and fail where a check failed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from plugins.hints import with_inventory
from plugins.terminal import COLORS, terminal_columns
from trainer.doctor_findings import Findings
from trainer.doctor_table import as_lines

display = Display()


class ActionModule(ActionBase):
    """Argument: `answers`, host -> result of the action host_doctor ({} where there is none)."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print the table. With -v it says what was found by every check."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        findings = Findings.of(variables["cluster_plan"], self._task.args["answers"])
        for line, kind in as_lines(findings, terminal_columns(), verbose=display.verbosity > 0):
            text = with_inventory(line, variables["ansible_inventory_sources"])
            display.display(text, color=COLORS[kind])
        result |= {"changed": False, "_ansible_verbose_override": True}
        if findings.failed:
            return result | {"failed": True, "msg": findings.summary}
        return result

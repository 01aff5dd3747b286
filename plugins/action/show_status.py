"""Show what every host said of its tasks as a table for people, and fail where no host said anything."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from plugins.hints import with_inventory
from plugins.terminal import COLORS, terminal_columns
from trainer.status import Status
from trainer.status_table import as_lines

display = Display()


class ActionModule(ActionBase):
    """Argument: `answers`, host -> result of host_status ({} where there is none)."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print the table. With -v it says more of each task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        answers = self._task.args["answers"]
        status = Status.of(variables["cluster_plan"], answers)
        for line, kind in as_lines(status, terminal_columns(), verbose=display.verbosity > 0):
            text = with_inventory(line, variables["ansible_inventory_sources"])
            display.display(text, color=COLORS[kind])
        result |= {"changed": False, "_ansible_verbose_override": True}
        if status.answered:
            return result
        return result | {
            "failed": True,
            "msg": "no host answered: mend ansible_host, ansible_port, ansible_user or the login key in the "
            "inventory, or sudo on the hosts",
        }

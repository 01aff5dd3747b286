"""Look at a host's tasks for status.yml. A host that gives no answer says why, and does not fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.reaching import ask


class ActionModule(ActionBase):
    """Arguments: `tasks` (those that the host has by the plan), `paths` (`cluster_paths`)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `problem` ("" where the host answered), `deployed` and `tasks`, as trainer_tasks does."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        paths = self._task.args["paths"]
        arguments = {
            "tasks": self._task.args["tasks"],
            "others": True,
            "details": True,
            "configuration_directory": paths["configuration_directory"],
            "state_directory": paths["state_directory"],
            "log_directory": paths["log_directory"],
        }
        answer, problem = ask(self, "trainer_tasks", arguments, task_vars or {})
        return result | {
            "changed": False,
            "problem": problem,
            "deployed": answer.get("deployed", {}),
            "tasks": answer.get("tasks", []),
            # The table says it all; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }

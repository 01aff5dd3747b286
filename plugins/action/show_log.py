"""Show what a task prints: the end of its log, and what comes after that as it comes."""

import os
import time
from typing import Any

from ansible.utils.display import Display

from psfleet.watch.followed_log import FollowedLog
from trainer.host.task_units import unit_name

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.asked_hosts import action_on

display = Display()

SECONDS = 1.0


class ActionModule(ControllerAction):
    """Arguments: `task`, such as worker1, `run_id` ("" for the last), `lines`, `follow`, `paths`, `user`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        tasks = {f"{task['job']}{task['index']}": task for task in self.variables["cluster_plan"]["tasks"]}
        task, run = tasks.get(arguments["task"]), arguments["run_id"] or "current"
        if task is None:
            return self._failure(
                f"task is {arguments['task']!r}; expected one of {', '.join(tasks)}, by -e task=.."
            )
        path = f"{arguments['paths']['log_directory']}/{run}/{arguments['task']}.out"
        unit = unit_name(task["job"], task["index"])
        log = FollowedLog(path, unit, arguments["user"], int(arguments["lines"]))
        there, parent, asked = action_on(self, task["host"]), os.getppid(), 0
        while os.getppid() == parent:
            answer = there._low_level_execute_command(log.command, sudoable=True)
            try:
                lines = log.read(answer["stdout"])
            except ValueError:
                return self._failure(
                    f"{task['host']} has no {path} that can be read: has it had a run, or that run_id? "
                    "`ansible-playbook status.yml` tells how its tasks are"
                )
            for line in lines:
                display.display(line)
            asked += 1
            # The first answer tells where the end is.
            if asked > 1 and not (arguments["follow"] and (log.alive or log.behind)):
                break
            time.sleep(0 if log.behind else SECONDS)
        return {}

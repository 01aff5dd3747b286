"""Shows the end of a task's log, and with `follow` new lines as they are written."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.utils.display import Display

from psfleet.watch.followed_log import FollowedLog
from trainer.contract.rules import as_given, integer
from trainer.host.task_units import unit_name

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.polled_hosts import action_on

display = Display()

SECONDS = 1.0
LINES = integer(0, 1_000_000)


class ActionModule(ControllerAction):
    """Arguments: `task`, such as worker1, `run_id` ("" for the last), `lines`, `follow`, `paths`, `user`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        tasks = tasks_with_logs(self.variables["cluster_plan"]["tasks"])
        task, run = tasks.get(arguments["task"]), arguments["run_id"] or "current"
        if task is None:
            return self._failure(
                f"task is {arguments['task']!r}; expected one of {', '.join(tasks)}, by -e task=.."
            )
        try:
            count = int(str(LINES.convert(arguments["lines"])))
        except ValueError:
            given = as_given(arguments["lines"])
            return self._failure(f"lines is {given}; expected {LINES.expected}, by -e lines=..")
        path = f"{arguments['paths']['log_directory']}/{run}/{arguments['task']}.out"
        unit = unit_name(task["job"], task["index"])
        log = FollowedLog(path, unit, arguments["user"], count)
        there, parent, polls = action_on(self, task["host"]), os.getppid(), 0
        while os.getppid() == parent:
            answer = there._low_level_execute_command(log.command, sudoable=True)
            try:
                lines = log.read(answer["stdout"])
            except ValueError:
                return self._failure(
                    f"{task['host']} has no {path} that can be read: has the task taken part in a run, or in "
                    "that run_id? `ansible-playbook status.yml` shows the state of its tasks"
                )
            for line in lines:
                display.display(line)
            polls += 1
            # The first answer only has the size of the log.
            if polls > 1 and not (arguments["follow"] and (log.alive or log.behind)):
                break
            time.sleep(0 if log.behind else SECONDS)
        return {}


def tasks_with_logs(plan: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return name -> job, index and host of the plan's tasks, and of servers and the evaluator.

    A run may give each worker a server of its own; the evaluator runs on the host of worker 0.
    """
    workers = [task for task in plan if task["job"] == "worker"]
    beside = [{**task, "job": "server"} for task in workers]
    beside += [{**task, "job": "evaluator"} for task in workers if task["index"] == 0]
    return {f"{task['job']}{task['index']}": dict(task) for task in (*plan, *beside)}

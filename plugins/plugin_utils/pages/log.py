"""The page `log`: the end of a task's log; with `follow`, also new lines as they are written."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from psfleet.carry.deadlines import TooLateError, within
from psfleet.run.active_runs import RefusedError, checked_run_id
from psfleet.watch.followed_log import FollowedLog
from psfleet.watch.terminal import escaping_display
from trainer.contract.rules import as_given, integer
from trainer.host.task_units import EVALUATION, task_name, unit_name

from ..actions import HostAction
from ..asked_hosts import ANSWER_SECONDS

display = escaping_display()

SECONDS = 1.0
LINES = integer(0, 1_000_000)


def show_page(  # noqa: PLR0913 - the arguments of the page
    action: HostAction, task: str, run_id: str, lines: object, user: str, *, follow: bool
) -> dict[str, Any]:
    """Show the last `lines` lines of the log of a task such as "worker1"; return {}, or a failure.

    The `run_id` "" means the task's last run. With `follow`, also show new lines until the task has ended.
    """
    tasks = tasks_with_logs(action.variables["cluster_plan"]["tasks"])
    if task not in tasks:
        return action._failure(f"task is {task!r}; expected one of {', '.join(tasks)}, by -e task=..")
    try:
        count = int(str(LINES.convert(lines)))
    except ValueError:
        return action._failure(f"lines is {as_given(lines)}; expected {LINES.expected}, by -e lines=..")
    try:
        run = checked_run_id(run_id) if run_id else "current"
    except RefusedError as refused:
        return action._failure(str(refused))
    planned = tasks[task]
    host = planned["host"]
    path = f"{action.variables['cluster_paths']['log_directory']}/{run}/{task}.out"
    log = FollowedLog(path, unit_name(planned["job"], planned["index"]), user, count)
    there, parent, polls = action.on(host), os.getppid(), 0
    while os.getppid() == parent:
        try:
            with within(ANSWER_SECONDS):
                printed, _ = there.run_command(log.command)
            new = log.read(printed)
        except TooLateError as late:
            return action._failure(f"{host} did not show {path} within {late}")
        except ValueError:
            return action._failure(
                f"{host} has no {path} that can be read: has the task taken part in a run, or in "
                "that run_id? `ansible-playbook status.yml` shows the state of its tasks"
            )
        for line in new:
            display.display(line)
        polls += 1
        # The first answer only has the size of the log.
        if polls > 1 and not (follow and (log.alive or log.behind)):
            break
        time.sleep(0 if log.behind else SECONDS)
    return {}


def tasks_with_logs(plan: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return {name such as "worker0": task} for all tasks that may have a log.

    These are the tasks in `plan`, a server for each worker (a run may have it), and psfleet's own evaluator,
    which runs on the host of worker 0, unless the plan has an evaluator. Each task has at least
    `job`, `index` and `host`.
    """
    workers = [task for task in plan if task["job"] == "worker"]
    beside = [{**task, "job": "server"} for task in workers]
    beside += [{**task, "job": EVALUATION} for task in workers if task["index"] == 0]
    own = {task_name(task["job"], task["index"]): dict(task) for task in plan}
    return own | {name: task for task in beside if (name := task_name(task["job"], task["index"])) not in own}

from typing import Any

import pytest

from plugins.action.show import ActionModule
from plugins.plugin_utils.pages import log
from tests.plugins.modules.module_run import action_of
from tests.psfleet.report.made_runs import make_plan

TASKS = make_plan().to_json()["tasks"]
ALL = "ps0, worker0, worker1, server0, server1, evaluator0"


def said(**given: object) -> str:
    arguments: dict[str, Any] = {
        "task": "worker0",
        "run_id": "",
        "lines": 50,
        "user": "psfleet",
        "follow": False,
    } | given
    action = action_of(ActionModule, cluster_plan={"tasks": TASKS})
    return str(action._act({"page": "log", **arguments})["msg"])


def test_servers_and_the_evaluator_have_logs_on_the_host_of_their_worker() -> None:
    found = log.tasks_with_logs(TASKS)
    assert ", ".join(found) == ALL
    assert found["server1"]["host"] == found["worker1"]["host"]
    assert (found["evaluator0"]["host"], found["evaluator0"]["job"]) == (
        found["worker0"]["host"],
        "evaluation",
    )
    of_program = log.tasks_with_logs([*TASKS, {"job": "evaluator", "index": 0, "host": "node9"}])
    assert (of_program["evaluator0"]["host"], of_program["evaluator0"]["job"]) == ("node9", "evaluator")


def test_an_unknown_task_is_refused_with_a_list_of_the_tasks() -> None:
    assert said(task="server9") == f"task is 'server9'; expected one of {ALL}, by -e task=.."


@pytest.mark.parametrize("lines", ["ten", "-1", "1.5", None, []])
def test_an_invalid_number_of_lines_is_refused(lines: object) -> None:
    assert said(lines=lines) == f"lines is {lines!r}; expected {log.LINES.expected}, by -e lines=.."

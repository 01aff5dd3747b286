"""Run ids that break the rule: each playbook refuses them, and reads nothing outside of the runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plugins.action import decide_run, find_summaries, show
from psfleet.run.active_runs import RUN_ID_RULE
from tests.plugins.modules.module_run import action_of
from tests.psfleet.report.made_runs import make_plan
from trainer.contract.rules import as_given

PLAN = make_plan().to_json()
SETTINGS: dict[str, object] = {}


def logs(run_id: str, _runs: Path) -> dict[str, Any]:
    given = {"page": "log", "task": "worker0", "lines": 5, "user": "psfleet", "follow": False}
    return _answer(show.ActionModule, given | {"run_id": run_id})


def verify(run_id: str, runs: Path) -> dict[str, Any]:
    given = {"page": "verdict", "runs_directory": str(runs), "settings": {}, "required": True}
    return _answer(show.ActionModule, given | {"run_id": run_id})


def decided(state: str) -> Callable[[str, Path], dict[str, Any]]:
    return lambda run_id, runs: _answer(
        decide_run.ActionModule,
        {"state": state, "run_id": run_id, "runs_directory": str(runs), "found": {}},
    )


def tensorboard(run_id: str, runs: Path) -> dict[str, Any]:
    return _answer(
        find_summaries.ActionModule,
        {"runs_directory": str(runs), "run_id": run_id, "cluster_name": "psfleet"},
    )


def _answer(action: type, arguments: dict[str, object]) -> dict[str, Any]:
    made = action_of(
        action, cluster_plan=PLAN, cluster_settings=SETTINGS, cluster_paths={"log_directory": "/nowhere"}
    )
    try:
        answer: dict[str, Any] = made._act(arguments)
    except Exception as error:  # some actions fail by an exception, which Ansible shows
        return {"failed": True, "msg": str(error)}
    return answer


PLAYBOOKS = {
    "logs": logs,
    "verify": verify,
    "export": decided("exported"),
    "stop": decided("stopped"),
    "train": decided("started"),
    "tensorboard": tensorboard,
}


@pytest.mark.parametrize("run_id", ["../x", "-x", " " * 20_000, "x\ny", "..", "/etc", "a/b", "x,../x"])
@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_a_run_id_that_breaks_the_rule_is_refused(tmp_path: Path, playbook: str, run_id: str) -> None:
    for folder in ("x", "runs/x"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "settings.json").write_text("it is damaged, whoever reads it")
    answer = PLAYBOOKS[playbook](run_id, tmp_path / "runs")
    # The names of several runs are separated by commas, with blanks around them.
    refused = run_id if playbook != "tensorboard" else run_id.rpartition(",")[2].strip() or run_id
    assert answer["failed"], answer
    assert f"run_id is {as_given(refused)}; expected {RUN_ID_RULE}" in answer["msg"]
    assert "damaged" not in answer["msg"]
    assert len(answer["msg"]) < 1000

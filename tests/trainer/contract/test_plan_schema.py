"""The published schema of plan.json takes what the code writes, and nothing that the code refuses."""

import json
from typing import Any

import jsonschema
import pytest

from tests.repository import ROOT
from trainer.contract.plan import ClusterPlan, PlannedTask

SCHEMA = json.loads((ROOT / "docs/schema/plan-1.schema.json").read_text(encoding="utf-8"))
PLAN = ClusterPlan(
    "lab",
    (
        PlannedTask("ps", 0, "node1", "10.0.0.1", 2222),
        PlannedTask("chief", 0, "node2", "[fd00::2]", 2222, (3,)),
    ),
).to_json()


def is_taken(content: dict[str, Any]) -> bool:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    return bool(jsonschema.Draft202012Validator(SCHEMA).is_valid(content))


def test_the_schema_accepts_a_plan_that_the_code_writes() -> None:
    assert is_taken(PLAN)
    assert ClusterPlan.from_json(PLAN).to_json() == PLAN


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"hash": "0123"},
        {"cluster_name": 3},
        {"tasks": [{**PLAN["tasks"][0], "job": "server"}]},
        {"tasks": [{**PLAN["tasks"][0], "port": -1}]},
        {"tasks": [{**PLAN["tasks"][0], "gpus": ["0"]}]},
        {"tasks": [{name: value for name, value in PLAN["tasks"][0].items() if name != "address"}]},
    ],
)
def test_the_schema_refuses_a_plan_that_the_code_refuses(change: dict[str, Any]) -> None:
    damaged = {**PLAN, **change}
    assert not is_taken(damaged)
    with pytest.raises(ValueError, match="plan"):
        ClusterPlan.from_json(damaged)

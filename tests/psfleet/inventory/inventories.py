"""Inventories as plain data, for tests that need no Ansible."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from psfleet.inventory.ansible_inventory import ROLES
from psfleet.inventory.problems import InventoryError
from psfleet.inventory.reading import Inventory, read_inventory
from psfleet.inventory.variables import rules
from trainer.contract.plan import ClusterPlan

DEFAULTS: dict[str, Any] = yaml.safe_load((ROLES / "trainer/defaults/main.yml").read_text(encoding="utf-8"))
SPECIFICATIONS = yaml.safe_load((ROLES / "trainer/meta/argument_specs.yml").read_text(encoding="utf-8"))
# One variable of another role is checked beside the plan.
RULES = rules(
    {**SPECIFICATIONS["argument_specs"]["main"]["options"], "training_run_success": {"type": "raw"}}
)

Hosts = Mapping[str, Mapping[str, object]]


def inventory(
    ps: Sequence[str],
    worker: Sequence[str],
    hosts: Hosts | None = None,
    chief: Sequence[str] = (),
    **every: object,
) -> Inventory:
    """Return the inventory with these groups, what each host sets, and what all of them set.

    Of `every`, `evaluator` are the hosts of this group.
    """
    evaluator = every.pop("evaluator", ())
    assert isinstance(evaluator, Sequence)
    names = dict.fromkeys([*ps, *worker, *chief, *evaluator])
    groups = {"ps": ps, "worker": worker, "chief": chief, "evaluator": evaluator}
    given = {group: members for group, members in groups.items() if members}
    return Inventory(
        groups={"all": [*names], "tf_cluster": [*names], **given},
        children=[*given],
        variables={name: {**every, **(hosts or {}).get(name, {})} for name in names},
        defaults=DEFAULTS,
        rules=RULES,
    )


def read(
    ps: Sequence[str],
    worker: Sequence[str],
    hosts: Hosts | None = None,
    chief: Sequence[str] = (),
    **every: object,
) -> ClusterPlan:
    """Return the plan of the inventory."""
    return read_inventory(inventory(ps, worker, hosts, chief, **every))[0]


def problems(
    ps: Sequence[str],
    worker: Sequence[str],
    hosts: Hosts | None = None,
    chief: Sequence[str] = (),
    **every: object,
) -> list[str]:
    """Return what is wrong with the inventory; it must be refused."""
    with pytest.raises(InventoryError) as caught:
        read(ps, worker, hosts, chief, **every)
    return [problem.what for problem in caught.value.problems]

"""Any inventory gives a plan that the trainer accepts, or a list of its problems."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, event, given, settings

from psfleet.inventory.problems import InventoryError, Unreadable, describe
from psfleet.inventory.reading import Inventory
from psfleet.run.cluster_facts import cluster_facts
from psfleet.run.task_files import task_environments
from tests.psfleet.inventory.any_inventory import any_inventory, made
from tests.psfleet.inventory.checked import checked, written
from trainer.contract.plan import JOBS, ClusterPlan
from trainer.contract.run_tasks import run_tasks
from trainer.contract.settings import TrainingSettings
from trainer.process.flags import parse

# The same inventories every time, so that nothing depends on chance.
CHOSEN = settings(
    derandomize=True, max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@CHOSEN
@given(any_inventory())
def test_any_inventory_gives_a_complete_plan_or_clear_problems(drawn: dict[str, Any]) -> None:
    inventory = made(drawn)
    try:
        facts = cluster_facts(inventory)
    except InventoryError as error:
        event("refused")
        require_clear(error, inventory)
    else:
        event("planned")
        require_whole(facts, inventory)


def require_clear(error: InventoryError, inventory: Inventory) -> None:
    """Assert that each problem names its subject and the expected value, and that no bad value is missed."""
    named = {*inventory.groups, *inventory.variables, *inventory.children, *JOBS, "tf_cluster"}
    for problem in error.problems:
        about = {*([problem.variable] if problem.variable else named), *problem.hosts}
        assert any(name in problem.what or repr(name) in problem.what for name in about), problem
        advice = (
            "expected",
            "did you mean",
            "write ",
            "take it out",
            "docs/inventory.md",
            "a cluster has",
            "a chief",
        )
        assert any(word in problem.what for word in advice), problem
        # These fields locate the place to edit.
        variable = problem.variable.partition(".")[0]
        assert not variable or problem.hosts or variable in inventory.command_line, problem
    told = describe(error.problems, lambda _: "edit x").split("\n")
    assert len(told) == 1 + 2 * len(error.problems)
    assert all(line.isprintable() and len(line) < 4000 for line in told)
    if "tf_cluster" in inventory.groups:
        assert refused_values(inventory) <= {each.variable.partition(".")[0] for each in error.problems}


def refused_values(inventory: Inventory) -> set[str]:
    """Return the variables for which a host has a value that their rule refuses."""

    def refused(name: str, value: object) -> bool:
        try:
            inventory.rules[name].convert(value)
        except ValueError:
            return True
        return False

    given = [pair for own in inventory.variables.values() for pair in own.items()]
    return {name for name, value in given if name in inventory.rules and refused(name, value)}


def require_whole(facts: Mapping[str, Any], inventory: Inventory) -> None:
    plan = ClusterPlan.from_json(json.loads(json.dumps(facts["cluster_plan"])))
    assert plan.to_json().items() <= facts["cluster_plan"].items()
    assert not refused_values(inventory)
    for job in JOBS:
        members = plan.tasks_of(job)
        assert [task.index for task in members] == list(range(len(members)))
        assert Counter(task.host for task in members) == {
            host: asked(inventory, host, job) for host in inventory.groups.get(job, ())
        }
    for taken in ([(task.host, task.port) for task in plan.tasks], [task.target for task in plan.tasks]):
        assert len(set(taken)) == len(plan.tasks)
    assert all(1024 <= task.port <= 65535 for task in plan.tasks)
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}", task.host) for task in plan.tasks)
    assert not {task.host for task in plan.tasks} & inventory.groups.keys()
    assert cluster_facts(reordered(inventory)) == facts
    read_by_tasks(plan, facts["cluster_settings"])


def asked(inventory: Inventory, host: str, job: str) -> int:
    """Return the number of tasks of a job that the inventory gives the host."""
    tasks = inventory.variables[host].get(f"trainer_{job}_tasks", 1) if job != "chief" else 1
    return len(tasks) if isinstance(tasks, list) else int(str(tasks))


def reordered(inventory: Inventory) -> Inventory:
    """Return the same inventory with another order in its mappings, which must not matter."""
    variables = {host: backwards(own) for host, own in backwards(inventory.variables).items()}
    return replace(inventory, groups=backwards(inventory.groups), variables=variables)


def backwards(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(reversed(list(mapping.items())))


def read_by_tasks(plan: ClusterPlan, told: Mapping[str, Any]) -> None:
    """Assert that the files of each task give it this plan and its settings."""
    environments = task_environments(
        [task.to_json() for task in plan.tasks], "", plan.to_json(), "r", {"CUDA": "x"}
    )
    jobs = {job: [task.target for task in plan.tasks_of(job)] for job in JOBS}
    for task, file in zip(plan.tasks, environments, strict=True):
        _, *lines = file["content"].splitlines()
        environment = dict(line.split("=", 1) for line in lines)
        assert json.loads(environment["TF_CONFIG"][1:-1]) == {
            "cluster": {job: targets for job, targets in jobs.items() if targets},
            "task": {"type": task.job, "index": task.index},
        }
    program = ["--program=x"] if told["program"] else []
    hosts = [f"--ps_hosts={plan.ps_hosts}", f"--worker_hosts={plan.worker_hosts}"]
    training = TrainingSettings.from_mapping(told["cluster"])
    # The first and the last: to make a parser of flags takes longer than all else.
    first, *others = run_tasks(plan, training, program=bool(program))
    for started in (first, *others[-1:]):
        told_of_task = told["tasks"][started.name]
        place = [f"--job_name={started.job}", f"--task_index={started.index}"]
        with NamedTemporaryFile("w") as stream:
            json.dump(told_of_task, stream)
            stream.flush()
            options = parse([*place, *hosts, *program, f"--settings={stream.name}"])
        if not options.cluster.is_local:
            assert (*options.cluster.ps_hosts, *options.cluster.worker_hosts) == (
                *jobs["ps"],
                *jobs["worker"],
            )
        values = {name: value for name, value in told_of_task.items() if value is not None}
        assert options.settings.as_dict().items() >= values.items()


@settings(CHOSEN, max_examples=30)
@given(any_inventory())
def test_each_problem_of_an_inventory_in_files_names_the_place_to_edit(drawn: dict[str, Any]) -> None:
    own = {
        host: {name: written_as(value) for name, value in of.items()}
        for host, of in drawn["variables"].items()
    }
    groups = {job: {"hosts": dict.fromkeys(drawn["groups"][job])} for job in drawn["children"]}
    tree = {"all": {"hosts": own}, "tf_cluster": {"children": groups}} if groups else {"all": {"hosts": own}}
    with TemporaryDirectory() as folder:
        facts, refusal = checked(written(Path(folder), {"hosts.yml": tree}), drawn["command_line"])
    _, *lines = refusal.split("\n")
    wheres = ("   edit ", "   given with -e on the command line", "   set it in ")
    for number, (what, where) in enumerate(zip(lines[::2], lines[1::2], strict=True), start=1):
        assert what.startswith(f"{number}. ")
        assert where.startswith(wheres)
    assert bool(facts) == (not refusal)


def written_as(value: object) -> object:
    """The value as a file can say it."""
    if isinstance(value, int) and value.bit_length() > 64:
        return hex(value)
    if isinstance(value, list):
        return [written_as(part) for part in value]
    return "{{ nowhere }}" if isinstance(value, Unreadable) else value

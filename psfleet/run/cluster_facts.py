"""Computes the facts with which every play of a cluster begins (docs/contracts.md)."""

from typing import Any

from psfleet.inventory.controller_files import data_source, program_fact
from psfleet.inventory.mesh_addresses import move_into_mesh
from psfleet.inventory.problems import InventoryError
from psfleet.inventory.proof import proof_settings, require_provable
from psfleet.inventory.reading import Inventory, data_directories, read_inventory
from psfleet.inventory.success_policy import ALL_WORKERS
from psfleet.inventory.success_policy import VARIABLE as SUCCESS
from psfleet.inventory.variables import PREFIX
from psfleet.run.settings import run_program, run_settings
from psfleet.run.table_bytes import table_bytes_of_hosts
from trainer.host.wording import grouped

# The trainer variables that other roles need, as the fact `cluster_paths`.
PATHS = ("install_directory", "configuration_directory", "state_directory", "log_directory")


def cluster_facts(inventory: Inventory, proof: str = "") -> dict[str, Any]:
    """Return {name of a fact: value} for the cluster; docs/contracts.md describes each fact.

    The facts are `cluster_plan`, `cluster_tasks`, `cluster_settings`, `cluster_mesh`, `cluster_paths`,
    `cluster_programs` and `cluster_data`. `proof` is the replication of a run of prove.yml, "async" or
    "sync", or "" for what the inventory trains. Raises InventoryError with every problem of the inventory,
    and of the files on the controller that the inventory names.
    """
    values, hosts = next(iter(inventory.converted[0].values()), {}), tuple(inventory.variables)
    read = [program_fact(program, hosts) for program in inventory.programs.programs]
    programs = [program for program, _ in read]
    model = inventory.own_model
    data, data_problems = data_source(values, hosts, None if programs else inventory.card)
    data_problems = [*data_problems, *(model.inventory_problems(hosts) if model else ())]
    problems = [*dict.fromkeys(problem for _, wrong in read for problem in wrong), *data_problems]
    try:
        plan, settings = read_inventory(inventory)
    except InventoryError as error:
        raise InventoryError([*error.problems, *problems]) from error
    if problems:
        raise InventoryError(problems)
    mesh: dict[str, Any] = {}
    if values[PREFIX + "encryption"] == "wireguard":
        plan, mesh = move_into_mesh(plan, values[PREFIX + "encryption_port"])
    if proof:
        require_provable(plan, inventory.command_line)
        settings = {task: proof_settings(of, proof, plan) for task, of in settings.items()}
    running = programs[inventory.programs.running] if programs and not proof else {}
    content = plan.to_json()
    chosen = {
        **run_settings(
            plan,
            settings,
            run_program(running, values[PREFIX + "install_directory"]),
            ALL_WORKERS if proof else values.get(SUCCESS, ALL_WORKERS),
            model.card.to_json() if model and model.card else None,
        ),
        "unchosen": [] if proof else list(inventory.programs.unchosen),
    }
    return {
        "cluster_plan": {**content, "ps_hosts": plan.ps_hosts, "worker_hosts": plan.worker_hosts},
        "cluster_tasks": grouped((task["host"], task) for task in content["tasks"]),
        "cluster_settings": chosen,
        "cluster_mesh": mesh,
        "cluster_paths": {name: values[PREFIX + name] for name in PATHS},
        "cluster_programs": programs,
        "cluster_data": {
            "source": data,
            "models": [model.fact()] if model else [],
            "directories": data_directories(plan, settings),
            "tables": table_bytes_of_hosts(plan, chosen),
        },
    }

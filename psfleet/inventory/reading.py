"""Reads an inventory: returns the cluster plan and each task's settings, or every problem that it has."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from psfleet.inventory.addresses import ValuesByHost
from psfleet.inventory.ansible_settings import host_key_problems, old_name_problems, ssh_argument_problems
from psfleet.inventory.groups import group_problems
from psfleet.inventory.named_programs import FLAGS, VARIABLE, Programs, choice_problems, programs_of
from psfleet.inventory.own_models import VARIABLE as MODEL
from psfleet.inventory.own_models import OwnModel
from psfleet.inventory.problems import InventoryError, InventoryProblem, named, value_in_words
from psfleet.inventory.success_policy import VARIABLE as SUCCESS
from psfleet.inventory.task_placement import Placement, place_tasks
from psfleet.inventory.variables import HOST_VARIABLES, PREFIX, unknown_name_advice
from trainer.contract.contradictions import replication_problems
from trainer.contract.model_card import CLICKS, Card
from trainer.contract.model_files import built_in_card
from trainer.contract.plan import ClusterPlan
from trainer.contract.program_arguments import misspelled, placeholders
from trainer.contract.rules import LONGEST_VALUE, Rule, as_given, convert_all
from trainer.contract.settings import GENERATED_WHERE_THE_GRAPH_IS, RULES, TrainingSettings
from trainer.host.wording import cut, first_of, grouped

# The folders that the sandbox of the units hides from them.
HIDDEN_FOLDERS = ("/home", "/root", "/run", "/var/run", "/var/spool", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written there

_DATA_VARIABLES = {"trainer_data_dir", "trainer_data_source", "trainer_install_directory"}


@dataclass(frozen=True)
class Inventory:
    """The inventory as plain data.

    - `groups`: {group: its hosts in inventory order}; `children`: the child groups of tf_cluster.
    - `variables`: {host of tf_cluster: its variables from files and the command line}.
    - `defaults`: the defaults of the role `trainer`. `roles`: the names of all roles.
    - `rules`: {variable that a role knows: its rule}.
    - `command_line`: the variables that -e sets.
    """

    groups: Mapping[str, Sequence[str]]
    children: Sequence[str]
    variables: Mapping[str, Mapping[str, object]]
    defaults: Mapping[str, object]
    rules: Mapping[str, Rule]
    roles: Sequence[str] = ("trainer",)
    command_line: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def converted(self) -> tuple[dict[str, dict[str, Any]], list[InventoryProblem]]:
        """({host: {variable: converted value}}, problems with the refused values), by `rules`.

        The values include the defaults of the role `trainer`, and leave out the refused values and the
        variables without a rule. Hosts with the same refused value share a problem.
        """
        converted, refused = {}, []
        for host, variables in self.variables.items():
            given = {**self.defaults, **variables}
            known = {name: value for name, value in given.items() if name in self.rules}
            converted[host], problems = convert_all(known, self.rules, str)
            refused += [
                (
                    (each.name.partition("[")[0], f"{each.name} {value_in_words(each.value)}", each.expected),
                    host,
                )
                for each in problems
            ]
        found = []
        for (name, what, expected), hosts in sorted(grouped(refused).items()):
            where = "" if len(hosts) == len(converted) else f" on {named(hosts)}"
            found.append(InventoryProblem(f"{what}{where}; expected {expected}", name, tuple(hosts)))
        return converted, found

    @cached_property
    def own_model(self) -> OwnModel | None:
        """The user's own model, read from its file; None if trainer_model does not end in ".py".

        It may have `problems`, for example if the file is missing.
        """
        model = str(next(iter(self.converted[0].values()), {}).get(MODEL, ""))
        return OwnModel.read(Path(model)) if model.endswith(".py") else None

    @property
    def card(self) -> Card | None:
        """The card of the inventory's model, built-in or the user's own.

        None if the model is unknown, or if its file has problems.
        """
        model = next(iter(self.converted[0].values()), {}).get(MODEL)
        return self.own_model.card if self.own_model else built_in_card(str(model))

    @cached_property
    def programs(self) -> Programs:
        """The user's own programs (`programs_of`); none if one of their variables has a refused value."""
        values = dict(next(iter(self.converted[0].values()), {}))
        # A program beside a chief is TensorFlow 2's, which reads TF_CONFIG.
        if values.get(FLAGS, True) is None:
            values[FLAGS] = not self.groups.get("chief")
        given = {name for of_host in self.variables.values() for name in of_host}
        return programs_of(values, self.command_line, given)


def read_inventory(inventory: Inventory) -> tuple[ClusterPlan, dict[str, TrainingSettings]]:
    """Return (plan, {name of a task: its settings}); the names are in the plan's order.

    Raises InventoryError with every problem of the inventory.
    """
    values, refused = inventory.converted
    placement = place_tasks(inventory.groups, values, inventory.variables)
    program = any(of.get("trainer_program") or of.get(VARIABLE) for of in values.values())
    problems = [
        *group_problems(inventory.groups, inventory.children, program=program),
        *_unknown_names(inventory),
        *refused,
        *host_key_problems(inventory.variables),
        *ssh_argument_problems(inventory.variables),
        *old_name_problems(inventory.variables),
        *_differences(inventory, values),
        *placement.problems,
        *_contradictions(inventory, values),
        *_data_problems(inventory, placement, values),
        *_argument_problems(inventory, placement, values),
    ]
    if problems:
        raise InventoryError(problems)
    tasks = placement.tasks
    plan = ClusterPlan(values[tasks[0].host]["trainer_cluster_name"], tasks)
    model = inventory.own_model
    found = {}
    for task in tasks:
        of_host = values[task.host]
        if model and model.problems:  # `cluster_facts` refuses it
            of_host = {**of_host, MODEL: TrainingSettings.model}
        elif model:
            of_host = {**of_host, MODEL: model.on_hosts(of_host["trainer_install_directory"])}
        found[task.name] = _settings(of_host, placement.settings[task.name])
    return plan, found


def _settings(values: Mapping[str, Any], own: Mapping[str, Any]) -> TrainingSettings:
    chosen = {name: values[PREFIX + name] for name in RULES}
    return TrainingSettings(**{**chosen, **own, "data_dir": _data_directory(values, own)})


def _data_directory(values: Mapping[str, Any], own: Mapping[str, object]) -> str:
    """Return a task's data directory: its own, else trainer_data_dir, else where deploy.yml carries data.

    "" if there is none of these. `own` are the settings that the task has of its own.
    """
    configured = own.get("data_dir") or values.get("trainer_data_dir") or ""
    carried = f"{values['trainer_install_directory']}/data" if values.get("trainer_data_source") else ""
    return str(configured or carried)


def data_directories(plan: ClusterPlan, settings: Mapping[str, TrainingSettings]) -> dict[str, list[str]]:
    """Return {host: data directories of its workers and chief}, each once, in the plan's order.

    Hosts without any are left out. `settings` is {name of a task: its settings}.
    """
    read = ((task.host, settings[task.name].data_dir) for task in plan.tasks if task.job != "ps")
    return grouped(dict.fromkeys((host, folder) for host, folder in read if folder))


def _contradictions(inventory: Inventory, values: ValuesByHost) -> Iterator[InventoryProblem]:
    """Yield a problem for each contradiction between variables of the whole cluster.

    The values of the first host count, apart from port_fence_enabled. Nothing if there are no hosts.
    """
    hosts = tuple(values)
    if not hosts:
        return
    chosen = values[hosts[0]]
    yield from choice_problems(chosen, inventory.command_line, inventory.programs.unchosen)
    if chosen.get("ssh_mesh_user", "") == chosen.get("trainer_user"):
        what = (
            f"ssh_mesh_user is {chosen['trainer_user']!r}, as trainer_user is; expected another: the user "
            "that runs"
        )
        yield InventoryProblem(f"{what} tasks may not log in among the hosts", "ssh_mesh_user", hosts)
    open_hosts = [host for host, of_host in values.items() if of_host.get("port_fence_enabled") is False]
    if open_hosts and chosen.get("trainer_encryption") == "wireguard":
        what = f"trainer_encryption is 'wireguard', and port_fence_enabled is false on {named(open_hosts)}"
        what = (
            f"{what}; expected true: the tasks listen on every address, and only the fence closes their "
            "ports to others"
        )
        yield InventoryProblem(what, "port_fence_enabled", tuple(open_hosts))
    settings = {name.removeprefix(PREFIX): value for name, value in chosen.items()}
    workers = _worker_count(inventory, values)
    if isinstance(policy := chosen.get(SUCCESS), int) and workers and policy > workers:
        what = f"{SUCCESS} is {policy}; expected at most {workers}, the number of workers"
        yield InventoryProblem(what, SUCCESS, hosts)
    card = inventory.card
    for setting, what in replication_problems(settings, workers, PREFIX, card).items():
        yield InventoryProblem(what, PREFIX + setting, hosts)
    if card and card.own_parts and settings.get("replication") == "local":
        what = f"trainer_model is {settings['model']!r} with trainer_replication 'local', where worker 0 is"
        what = f"{what} alone with its part; expected another replication, or another model"
        yield InventoryProblem(what, "trainer_replication", hosts)
    if card and card.own_parts and settings.get("shard_data"):
        what = f"trainer_shard_data is true with trainer_model {settings['model']!r}, which gives each worker"
        yield InventoryProblem(f"{what} its own examples; expected false", "trainer_shard_data", hosts)


def _data_problems(
    inventory: Inventory, placement: Placement, values: ValuesByHost
) -> Iterator[InventoryProblem]:
    """Yield a problem for each data directory that tasks cannot see because systemd hides it.

    Yield one, too, for hosts whose existing servers would have to generate clicks, and for each host whose
    tasks have different directories although trainer_data_source is carried there.
    """
    settings = placement.settings
    # {(host, data directory): own settings of a task that reads there}
    own = {
        (task.host, _data_directory(values[task.host], settings[task.name])): settings[task.name]
        for task in placement.tasks
        if task.job != "ps" and values[task.host].keys() >= _DATA_VARIABLES
    }
    for (host, directory), of_task in own.items():
        if any(PurePosixPath(directory).is_relative_to(hidden) for hidden in HIDDEN_FOLDERS):
            outside = f"expected one outside of {', '.join(HIDDEN_FOLDERS)}"
            what = f"the data_dir of {host} is {directory!r}; {outside}"
            variable = PREFIX + ("worker_tasks" if of_task.get("data_dir") else "data_dir")
            yield InventoryProblem(f"{what}, which tasks do not see", variable, (host,))
    reads_clicks = inventory.card is not None and inventory.card.data == CLICKS
    without = tuple(
        host
        for host, directory in own
        if not directory and reads_clicks and values[host].get("trainer_existing_servers")
    )
    if without:
        what = f"trainer_existing_servers is true, and {named(without)} has no trainer_data_dir"
        expected = "expected false, or files of clicks in trainer_data_dir or trainer_data_source"
        what = f"{what}: {GENERATED_WHERE_THE_GRAPH_IS}; {expected}"
        yield InventoryProblem(what, "trainer_existing_servers", without)
    for host, found in grouped(own).items():
        if values[host].get("trainer_data_source") and len(found) > 1:
            what = f"the tasks of {host} read {' and '.join(found)}; expected one data_dir on a host"
            what = f"{what}, because trainer_data_source is carried there once"
            yield InventoryProblem(what, "trainer_worker_tasks", (host,))


def _argument_problems(
    inventory: Inventory, placement: Placement, values: ValuesByHost
) -> Iterator[InventoryProblem]:
    """Yield a problem for each argument that would not reach its program as the user means it.

    These are arguments in one text instead of a list, except with -e, and placeholders that are misspelled or
    have no value.
    """
    variable, hosts = "trainer_program_arguments", tuple(values)
    given = next((of_host[variable] for of_host in inventory.variables.values() if variable in of_host), None)
    arguments: list[str] = next((chosen[variable] for chosen in values.values() if variable in chosen), [])
    # On the command line, a text is fine: a list would need quotes within quotes.
    if isinstance(given, str) and arguments and variable not in inventory.command_line:
        what = f"{variable} is the text {as_given(given)}; expected a list"
        yield InventoryProblem(f"{what}: {variable}: {json.dumps(arguments)}", variable, hosts)
    lacking = [
        task.name
        for task in placement.tasks
        if task.job != "ps"
        and values[task.host].keys() >= _DATA_VARIABLES
        and not _data_directory(values[task.host], placement.settings[task.name])
    ]
    named_ones: Mapping[str, Any] = next(
        (chosen[VARIABLE] for chosen in values.values() if VARIABLE in chosen), {}
    )
    of_named = {f"{VARIABLE}.{name}.arguments": of.get("arguments", []) for name, of in named_ones.items()}
    for variable_name, texts in {variable: arguments, **of_named}.items():
        for what in _unfilled(texts, lacking):
            yield InventoryProblem(f"{variable_name} has {what}", variable_name, hosts)


def _unfilled(arguments: Sequence[str], lacking: Sequence[str]) -> Iterator[str]:
    """Yield words for each placeholder in `arguments` that is misspelled, or that has no value.

    `lacking` are the tasks without a data directory, for which {data_dir} has none.
    """
    for name, meant in {n: m for argument in arguments for n, m in misspelled(argument).items()}.items():
        what = f"{{{name}}}, which is no placeholder; expected {{{meant}}}"
        yield f"{what}, or \\{{{name}}} to pass it on as it is"
    if lacking and any("data_dir" in placeholders(argument) for argument in arguments):
        what = f"{{data_dir}}, and {first_of(lacking)} has none; expected trainer_data_source,"
        yield f"{what} which deploy.yml carries there, or trainer_data_dir, a folder that is on the host"


def _worker_count(inventory: Inventory, values: ValuesByHost) -> int | None:
    """Return the number of workers; None if trainer_worker_tasks of a host is invalid."""
    tasks_of_hosts = [
        values.get(host, {}).get("trainer_worker_tasks") for host in inventory.groups.get("worker", ())
    ]
    return None if None in tasks_of_hosts else sum(len(tasks) for tasks in tasks_of_hosts if tasks)


def _unknown_names(inventory: Inventory) -> Iterator[InventoryProblem]:
    set_for_hosts = grouped((name, host) for host, of_host in inventory.variables.items() for name in of_host)
    known = tuple(inventory.rules)
    prefixes = tuple(f"{role}_" for role in inventory.roles)
    for name in dict.fromkeys((*inventory.command_line, *set_for_hosts)):
        given = name in inventory.command_line
        if advice := unknown_name_advice(name, known, prefixes, on_command_line=given):
            what = f"{name} is a variable that no role knows; {advice}"
            yield InventoryProblem(what, name, tuple(set_for_hosts.get(name, ())))


def _differences(inventory: Inventory, values: ValuesByHost) -> Iterator[InventoryProblem]:
    for name in inventory.rules:
        if name in HOST_VARIABLES or not (name.startswith(PREFIX) or name == SUCCESS):
            continue
        hosts_with = grouped((repr(chosen[name]), host) for host, chosen in values.items() if name in chosen)
        if len(hosts_with) > 1:
            seen = ", ".join(
                f"{cut(value, LONGEST_VALUE)} on {named(hosts)}" for value, hosts in hosts_with.items()
            )
            what = f"{name} is {seen}; expected one value for the whole cluster"
            yield InventoryProblem(what, name, tuple(values), everywhere=True)

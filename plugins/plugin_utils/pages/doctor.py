"""The page `doctor`: checks what tasks need of every host, and shows a table; it fails if a check failed."""

import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from psfleet.carry.wheel_stores import WheelStore
from psfleet.inventory.addresses import port_of_sshd
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.doctor_table import doctor_table
from trainer.host.check import Check

from ...module_utils.checks.clock_checks import clock_finding, clock_offset
from ...module_utils.environments.environment import every_environment
from ..actions import HostAction
from ..asked_hosts import AnswerOrProblem, ask_hosts
from ..reaching import ask
from .tables import show_table

LOCKS = Path(__file__).resolve().parents[3] / "roles" / "package_store" / "files"
# Seconds for a round of hosts to answer. All hosts must listen before the first one connects.
SECONDS_OF_A_ROUND = 60
# The most seconds that a host takes for all findings; it may wait for other doctors to try TensorFlow.
DOCTOR_SECONDS = 1200.0
# {variable of a host: argument of the module}. Their defaults are in other roles; else the module's defaults
# count.
HOST_ARGUMENTS = {
    "package_store_python_version": "python_version",
    "nvidia_cuda_source": "cuda_source",
    "port_fence_enabled": "fence",
}


def show_page(action: HostAction, cache_directory: str) -> dict[str, Any]:
    """Check every host of the play, and show the table; return `problems` and, if a check failed, a failure.

    `problems` is {host: why it did not answer, "" if it did}; each host has a row. `cache_directory` is where
    `wheel_store` keeps the wheels. The variables of the deploying roles decide what is checked.
    """
    hosts = list(action.variables["ansible_play_hosts_all"])
    # In check mode nothing is started, so nobody listens.
    peers = _ask_peers(action, hosts) if len(hosts) > 1 and not action.check_mode else {}
    # A host that gave no answer before is not asked again, which would only delay the others.
    silent = {host: answer for host, answer in peers.items() if answer["problem"]}
    others = {host: peers.get(host, {}) for host in hosts if host not in silent}
    answer_of = {**silent, **_ask_checks(action, others, Path(cache_directory).expanduser())}
    answers = {host: answer_of[host] for host in hosts}
    findings = Findings.of(action.variables["cluster_plan"], answers)
    return show_table(action, partial(doctor_table, findings), findings.failure, answers)


def _ask_peers(action: HostAction, hosts: Collection[str]) -> dict[str, dict[str, Any]]:
    """Make all hosts listen, then let each connect to all; return {host: {`problem`, `listening`, `probed`}}.

    `problem` is why the host did not answer one of the two questions, "" if it answered both. `listening` and
    `probed` are its answers to these states of `host_doctor`; a host that did not listen has `probed` {}.
    """
    tasks = action.variables["cluster_plan"]["tasks"]
    rounds = 1 + len(hosts) // int(action.variables["ansible_forks"])
    seconds = SECONDS_OF_A_ROUND * (1 + rounds)
    own = {host: [task for task in tasks if task["host"] == host] for host in hosts}
    of_hosts = [task for task in tasks if task["host"] in hosts]

    def ask_all(
        state: str, tasks_for: Mapping[str, Sequence[object]], **more: int
    ) -> dict[str, dict[str, Any]]:
        return ask_hosts(
            action,
            "host_doctor",
            {host: {"state": state, **more, "host": host, "tasks": tasks_for[host]} for host in tasks_for},
        )

    listening = ask_all("listening", own, seconds=seconds)
    answered = [host for host in hosts if not listening[host]["problem"]]
    probed = ask_all("probed", dict.fromkeys(answered, of_hosts))
    return {
        host: {
            "problem": probed.get(host, listening[host])["problem"],
            "listening": listening[host],
            "probed": probed.get(host, {}),
        }
        for host in hosts
    }


def _ask_checks(
    action: HostAction, peers: Mapping[str, Mapping[str, Any]], cache: Path
) -> dict[str, dict[str, Any]]:
    """Check the hosts, and end their listeners; return {host: its answer, as `Findings.of` takes it}.

    `peers` is what `_ask_peers` returned, {} for each host if nobody listens.
    """
    plan, mesh, data = (action.variables[f"cluster_{name}"] for name in ("plan", "mesh", "data"))
    of_all = {
        "addresses": endpoints(plan, mesh),
        "environments": environments_today(LOCKS, cache),
        "plan": plan["hash"],
        "release": action.variables["cluster_release"],
        "mesh": bool(mesh),
        "paths": action.variables["cluster_paths"],
        "systems": action.variables["cluster_systems"],
    }
    arguments = {
        host: {
            **of_all,
            **_host_arguments(action, host),
            "host": host,
            "tasks": action.variables["cluster_tasks"].get(host, []),
            "data_directories": [] if data["source"] else data["directories"].get(host, []),
            "tables": data["tables"].get(host, {}),
            "programs": required_packages(action.variables["cluster_programs"]),
            "listener": of_host.get("listening", {}).get("listener", {}),
        }
        for host, of_host in peers.items()
    }
    answers = ask_hosts(action, "host_doctor", arguments, ask_with_clock, DOCTOR_SECONDS)
    return {
        host: with_peers(answer, peers[host], mesh) | {"fence": boolean(arguments[host].get("fence", True))}
        for host, answer in answers.items()
    }


def _host_arguments(action: HostAction, host: str) -> dict[str, Any]:
    """Return the arguments of `host_doctor` that come from the host's variables, and `sshd_port`.

    An argument is left out if the host does not have its variable; then the module's default counts.
    """
    variables = action.variables["hostvars"][host]
    of_host = {argument: variables[name] for name, argument in HOST_ARGUMENTS.items() if name in variables}
    return of_host | {"sshd_port": port_of_sshd(host, variables)}


def ask_with_clock(action: HostAction, module: str, arguments: Mapping[str, Any]) -> AnswerOrProblem:
    """Run a module on the action's host; return (its answer, ""), or ({}, the problem in words).

    The answer's `checks` get one more check, `clock`: the host's clock compared with the controller's.
    """
    started = time.time()
    answer, problem = ask(action, module, arguments)
    answered = time.time()
    if problem:
        return {}, problem
    ahead, uncertainty = clock_offset(started, answer["began"], answer["ended"], answered)
    clock = Check("clock", *clock_finding(ahead, uncertainty)).to_json()
    return {**answer, "checks": [*answer["checks"], clock]}, ""


def with_peers(
    answer: Mapping[str, Any], peers: Mapping[str, Any], mesh: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a host's answer to the module `host_doctor`, with `peers` and `mesh` added.

    - `peers`: the argument, from `_ask_peers`; {} if the host did not answer, or if a mesh is planned and not
      deployed yet. If the host's listener ended early, no port counts as `free` for it.
    - `mesh`: the port of the mesh, 0 without a mesh.
    """
    # A mesh connects hosts only once it is deployed.
    if not peers or answer["problem"] or (mesh and not answer["deployed"]):
        peers = {}
    elif peers["listening"]["listener"] and not answer["listened"]:  # the listener has given way to a run
        peers = {**peers, "listening": {**peers["listening"], "free": []}}
    return {**answer, "peers": peers, "mesh": mesh.get("port", 0)}


def environments_today(locks: Path, cache: Path) -> dict[str, dict[str, Any]]:
    """Return {name: result of `WheelStore.describe`} for every environment that a host may get."""
    return {each.name: WheelStore.of(each, locks, cache).describe() for each in every_environment()}


def required_packages(programs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the `packages` of the programs that have requirements, equal requirements once.

    `programs` is the fact `cluster_programs`.
    """
    return list({of["key"]: of for each in programs if (of := each["packages"])}.values())


def endpoints(plan: Mapping[str, Any], mesh: Mapping[str, Any]) -> dict[str, str]:
    """Return {host: its address outside of the mesh}; without a mesh, its address in the plan."""
    addresses = {task["host"]: task["address"] for task in plan["tasks"]}
    return addresses | {host: each["endpoint"] for host, each in mesh.get("hosts", {}).items()}

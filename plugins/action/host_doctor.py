"""Look at all that tasks need of a host. A host that gives no answer says why, and does not fail."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from psfleet.carry.wheel_stores import WheelStore
from trainer.host.check import Check
from trainer.host.clock_checks import clock_check, clock_offset
from trainer.host.environment import every_environment

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask


class ActionModule(HostAction):
    """Arguments: those of the module but `addresses` and `environments`, and two folders here.

    These are `locks` (those of the environments) and `cache_directory` (of their wheels). `peers`
    is what host_peers answered; its listener is ended. Returns `problem` ("" where the host answered),
    `peers`, `fence`, `mesh` (its port, 0 without one), and `checks`, `deployed` and `alive` as the module
    does. The check `clock` is added here, where the other clock is.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        peers = arguments.pop("peers")
        listening, mesh = peers.get("listening", {}), self.variables["cluster_mesh"]
        arguments |= {
            "listener": listening.get("listener", {}),
            "addresses": endpoints(self.variables["cluster_plan"], mesh),
            "environments": environments(
                Path(arguments.pop("locks")), Path(arguments.pop("cache_directory")).expanduser()
            ),
        }
        asked = time.time()
        # Whom one could not ask before would keep everybody waiting once more.
        answer, problem = (
            ({}, peers["problem"]) if peers.get("problem") else ask(self, "host_doctor", arguments)
        )
        answered = time.time()
        if listening.get("listener") and not answer.get("listened"):  # it has given way to a run
            peers |= {"listening": listening | {"free": []}}
        checks = list(answer.get("checks", ()))
        if answer:
            ahead, uncertainty = clock_offset(asked, answer["began"], answer["ended"], answered)
            checks.append(Check("clock", *clock_check(ahead, uncertainty)).to_json())
        return {
            "problem": problem,
            "checks": checks,
            "deployed": answer.get("deployed", ""),
            "alive": answer.get("alive", []),
            "fence": boolean(arguments.get("fence", True)),
            # The way that leads through a mesh is there once something is deployed.
            "peers": peers if "probed" in peers and answer and (answer["deployed"] or not mesh) else {},
            "mesh": mesh.get("port", 0),
            # The table says it all; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }


def environments(locks: Path, cache: Path) -> dict[str, dict[str, Any]]:
    """Return what a deployment would install, by the names of all environments that a host may get."""
    return {each.name: WheelStore.of(each, locks, cache).describe() for each in every_environment()}


def endpoints(plan: Mapping[str, Any], mesh: Mapping[str, Any]) -> dict[str, str]:
    """Return where each host is reached, by way of no mesh."""
    addresses = {task["host"]: task["address"] for task in plan["tasks"]}
    return addresses | {host: each["endpoint"] for host, each in mesh.get("hosts", {}).items()}

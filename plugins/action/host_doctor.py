"""Checks everything that tasks need of a host. A host without an answer does not fail, but has a reason."""

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
    """Arguments: those of the step except `addresses` and `environments`, and two folders on the controller.

    These are `locks` (of the environments) and `cache_directory` (of their wheels). `peers` is the answer of
    host_peers, whose listener is ended. Returns `problem` ("" if the host answered), `peers`, `fence`, `mesh`
    (its port, 0 without one), and the step's `checks`, `deployed` and `alive`. The check `clock` is added
    here, because it compares with the controller's clock.
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
        started = time.time()
        # If the host did not answer before, another attempt would only delay everyone again.
        answer, problem = (
            ({}, peers["problem"]) if peers.get("problem") else ask(self, "host_doctor", arguments)
        )
        answered = time.time()
        if listening.get("listener") and not answer.get("listened"):  # the listener has given way to a run
            peers |= {"listening": listening | {"free": []}}
        checks = list(answer.get("checks", ()))
        if answer:
            ahead, uncertainty = clock_offset(started, answer["began"], answer["ended"], answered)
            checks.append(Check("clock", *clock_check(ahead, uncertainty)).to_json())
        return {
            "problem": problem,
            "checks": checks,
            "deployed": answer.get("deployed", ""),
            "alive": answer.get("alive", []),
            "fence": boolean(arguments.get("fence", True)),
            # A mesh connects hosts only once it is deployed.
            "peers": peers if "probed" in peers and answer and (answer["deployed"] or not mesh) else {},
            "mesh": mesh.get("port", 0),
            # The table shows everything; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }


def environments(locks: Path, cache: Path) -> dict[str, dict[str, Any]]:
    """Return what a deployment would install, by the name of each environment that a host may get."""
    return {each.name: WheelStore.of(each, locks, cache).describe() for each in every_environment()}


def endpoints(plan: Mapping[str, Any], mesh: Mapping[str, Any]) -> dict[str, str]:
    """Return the address of each host outside of any mesh."""
    addresses = {task["host"]: task["address"] for task in plan["tasks"]}
    return addresses | {host: each["endpoint"] for host, each in mesh.get("hosts", {}).items()}

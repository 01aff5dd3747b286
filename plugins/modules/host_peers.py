"""Listens at the ports of this host's tasks for a while, or connects to those of the other hosts.

It changes nothing, and does not fail for what it finds. It is not for check mode, because it listens.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_peers
short_description: Listens at the ports of this host's tasks for a while, or connects to those of
  the other hosts
description:
  - It changes nothing, and does not fail for what it finds.
  - It is not for check mode, because it listens.
author: psfleet (@psfleet)
options:
  host:
    description: The host's name in the plan.
    type: str
    required: true
  state:
    description: V(listening) leaves a process, which V(host_doctor) ends. It ends by itself after
      V(seconds), and when a task is started that needs one of its ports. V(probed) connects to the
      ports of all other hosts.
    type: str
    required: true
    choices:
      - listening
      - probed
  tasks:
    description: Those of the plan.
    type: list
    elements: dict
    required: true
  seconds:
    description: How long to listen at most.
    type: int
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Listen at the ports of the host's tasks
  psfleet.cluster.host_peers:
    state: listening
    host: "{{ inventory_hostname }}"
    tasks: "{{ cluster_tasks[inventory_hostname] }}"
    seconds: 60
"""

RETURN = r"""
machine:
  returned: if listening
  type: str
  description: The greeting of this machine.
free:
  returned: if listening
  type: list
  description: The ports where it listens now.
  elements: str
held:
  returned: if listening
  type: list
  description: The ports that other processes hold.
  elements: str
listener:
  returned: if listening
  type: dict
  description: The process, as host_doctor ends it.
names:
  returned: if probed
  type: dict
  description: The IP addresses of each name in the plan.
probes:
  returned: if probed
  type: list
  description: As plugins/module_utils/network/peer_probes.py has it.
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checks.name_checks import names_in, resolve_names
from ..module_utils.checks.port_checks import is_doctor, running_units, task_ports
from ..module_utils.host.port_holders import read_holders
from ..module_utils.module import made
from ..module_utils.network.peer_probes import Peer, bind, listen_apart, probe_all, this_machine

ARGUMENTS: dict[str, Any] = {
    "host": {"required": True},
    "state": {"choices": ["listening", "probed"], "required": True},
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "seconds": {"type": "int", "required": True},
}


def listening(values: dict[str, Any]) -> dict[str, Any]:
    """Listen at the ports that are free and whose tasks do not run, since a task may be about to listen."""
    tasks = task_ports([task for task in values["tasks"] if task["host"] == values["host"]])
    running = running_units(tasks)
    holders = read_holders([task.port for task in tasks])
    held = {holder.port for holder in holders if not is_doctor(holder)}
    idle = [task for task in tasks if task.port not in held and not running.keys() & set(task.units)]
    servers, listener = bind([task.port for task in idle]), {}
    if servers:
        name, seconds = values["host"], values["seconds"]
        listener = listen_apart(servers.values(), name, seconds, lambda: bool(running_units(idle)))
    return {"machine": this_machine(), "free": [*servers], "held": sorted(held), "listener": listener}


def probed(values: dict[str, Any]) -> dict[str, Any]:
    """Connect to the other hosts' ports, and return the results."""
    tasks = [task for task in values["tasks"] if task["host"] != values["host"]]
    names = resolve_names(names_in({task["host"]: task["address"] for task in tasks}))
    peers = [Peer(task["host"], task["address"], int(task["port"])) for task in tasks]
    return {"names": {name: found.addresses for name, found in names.items()}, "probes": probe_all(peers)}


def run(module: AnsibleModule) -> None:
    """Do it, and answer."""
    act = listening if module.params["state"] == "listening" else probed
    module.exit_json(changed=False, **act(dict(module.params)))


def main() -> None:
    """Run the module."""
    run(made(ARGUMENTS))


if __name__ == "__main__":
    main()

"""Checks everything on one host that its tasks need, and how the hosts reach each other; changes nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_doctor
short_description: Checks everything on one host that its tasks need, and changes nothing
description:
  - The module does not fail if a check fails; it returns the failed check.
  - V(state=checked) checks the host in one round trip. If something is deployed, TensorFlow is tried in the sandbox
    of the tasks, by the unit V(psfleet-doctor@), except in check mode.
  - With V(state=listening) and then V(state=probed) the hosts find out whether they reach each other. These states
    are not for check mode, because a host listens.
  - An option of another state is refused.
author: psfleet (@psfleet)
options:
  host:
    description: The host's name in the plan.
    type: str
    required: true
  tasks:
    description: Tasks of the plan, of this host with V(state=checked) and V(state=listening), of all hosts with V(state=probed).
    type: list
    elements: dict
    required: true
  state:
    description:
      - V(checked) makes the checks.
      - V(listening) leaves a process that listens at the ports of the host's tasks, and which V(checked) ends. It ends by
        itself after O(seconds), and when a task is started that needs one of its ports.
      - V(probed) connects to the ports of all other hosts.
    type: str
    choices:
      - checked
      - listening
      - probed
    default: checked
  seconds:
    description: How long to listen at most. V(state=listening) requires it.
    type: int
  addresses:
    description: The address of each host in the plan. V(state=checked) requires it.
    type: dict
  sshd_port:
    description: The port at which the other hosts reach the host's sshd. V(state=checked) requires it.
    type: int
  plan:
    description: Hash of today's plan. V(state=checked) requires it.
    type: str
  release:
    description: Hash of the trainer that would be deployed today. V(state=checked) requires it.
    type: str
  environments:
    description: >-
      For the name of each environment that the host may get, what M(psfleet.cluster.wheel_store) returned.
      V(state=checked) requires it.
    type: dict
  python_version:
    description: As in the part V(requirements) of M(psfleet.cluster.host_facts).
    type: str
    default: ''
  cuda_source:
    description: As in the part V(requirements) of M(psfleet.cluster.host_facts).
    type: str
    choices:
      - wheels
      - system
    default: wheels
  fence:
    description: Whether the ports of the host's tasks should be fenced.
    type: bool
    default: true
  mesh:
    description: Whether the host should have WireGuard.
    type: bool
    default: false
  tables:
    description: The tables of a model that its tasks will hold, as in V(HostNeeds) of host_checks.py.
    type: dict
    default: {}
  programs:
    description: As in the part V(requirements) of M(psfleet.cluster.host_facts).
    type: list
    elements: dict
    default: []
  data_directories:
    description: The folders from which the host's tasks read data, if deploy.yml does not carry the data.
    type: list
    elements: str
    default: []
  listener:
    description: The listener that V(state=listening) returned, which is ended first.
    type: dict
    default: {}
  paths:
    description: The fact V(cluster_paths). V(state=checked) requires it.
    type: dict
  systems:
    description: The fact V(cluster_systems). V(state=checked) requires it.
    type: dict
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Check every host, and show the findings
  psfleet.cluster.show:
    page: doctor
    cache_directory: ~/.cache/psfleet
  run_once: true

- name: Listen at the ports of the host's tasks
  psfleet.cluster.host_doctor:
    state: listening
    host: "{{ inventory_hostname }}"
    tasks: "{{ cluster_tasks[inventory_hostname] }}"
    seconds: 60
"""

RETURN = r"""
checks:
  returned: if checked
  type: list
  description: >-
    Each with `name`, `state` (`ok`, `warning`, `failed` or `skipped`), `found`, `remedy` (empty unless the state is
    `warning` or `failed`) and `task` (such as `worker0`, empty for the host).
  elements: dict
deployed:
  returned: if checked
  type: str
  description: The version of TensorFlow that tasks use, empty if nothing is deployed.
alive:
  returned: if checked
  type: list
  description: The names of the tasks of this host that run, such as `worker0`.
  elements: str
listened:
  returned: if checked
  type: bool
  description: Whether the listener was still running when this call ended it.
began:
  returned: if checked
  type: float
  description: This host's clock before the checks, in Unix seconds.
ended:
  returned: if checked
  type: float
  description: This host's clock after the checks, in Unix seconds.
machine:
  returned: if listening
  type: str
  description: The identifier of this machine, which is part of the listener's greeting.
free:
  returned: if listening
  type: list
  description: The ports where it listens now.
  elements: int
held:
  returned: if listening
  type: list
  description: The ports that other processes hold.
  elements: int
listener:
  returned: if listening
  type: dict
  description: The listening process, for the option `listener` of V(state=checked); empty if no port was free.
names:
  returned: if probed
  type: dict
  description: For each host name in the plan, its IP addresses here; none if it does not resolve.
probes:
  returned: if probed
  type: list
  description: The results of the connections, as `probe_all` of plugins/module_utils/network/peer_probes.py returns them.
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checks.doctor import check_host
from ..module_utils.module import make_module_with_states
from ..module_utils.network.peers import listen, probe_peers

ARGUMENTS: dict[str, Any] = {
    "host": {"required": True},
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "state": {"choices": ["checked", "listening", "probed"], "default": "checked"},
    "seconds": {"type": "int"},
    "addresses": {"type": "dict"},
    "sshd_port": {"type": "int"},
    "plan": {},
    "release": {},
    "environments": {"type": "dict"},
    "python_version": {"default": ""},
    "cuda_source": {"choices": ["wheels", "system"], "default": "wheels"},
    "fence": {"type": "bool", "default": True},
    "mesh": {"type": "bool", "default": False},
    "tables": {"type": "dict", "default": {}},
    "programs": {"type": "list", "elements": "dict", "default": []},
    "data_directories": {"type": "list", "elements": "str", "default": []},
    "listener": {"type": "dict", "default": {}},
    "paths": {"type": "dict"},
    "systems": {"type": "dict"},
}
REQUIRED = {
    "checked": ("addresses", "sshd_port", "plan", "release", "environments", "paths", "systems"),
    "listening": ("seconds",),
}
OPTIONAL = {
    "checked": (
        "python_version",
        "cuda_source",
        "fence",
        "mesh",
        "tables",
        "programs",
        "data_directories",
        "listener",
    )
}


def run(module: AnsibleModule) -> None:
    """Exit with the answer of the `state`: this host's checks, its listener, or its probes of other hosts."""
    values, state = module.params, module.params["state"]
    if state == "checked":
        answer = check_host(values, check_mode=module.check_mode)
    else:
        answer = listen(values) if state == "listening" else probe_peers(values)
    module.exit_json(changed=False, **answer)


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module_with_states(ARGUMENTS, REQUIRED, OPTIONAL))


if __name__ == "__main__":
    main()

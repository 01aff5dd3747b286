"""Takes, renews or gives back the lease of a host, so that only one playbook at a time changes the host.

A lease that is not renewed ends. The action `cluster_lease` takes the leases of all hosts, and renews them
until the playbook ends.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_lease
short_description: Takes, renews or gives back the lease of a host, so that one playbook at a time changes it
description:
  - A lease that is not renewed ends. M(psfleet.cluster.cluster_lease) takes the leases of all hosts, and renews them
    until the playbook ends.
author: psfleet (@psfleet)
options:
  state:
    description: What to do with the lease. V(undone) releases it, and says that nothing was changed under it.
    type: str
    required: true
    choices:
      - queried
      - taken
      - renewed
      - released
      - undone
  token:
    description: The secret of the lease's holder.
    type: str
    default: ''
  holder:
    description: The person who takes the lease, in the words that others see.
    type: str
    default: ''
  looked:
    description: The V(looked) that M(psfleet.cluster.trainer_tasks) returned; -1 if the host was not looked at.
    type: float
    default: -1
  patience:
    description: Seconds to wait for the lease.
    type: float
    default: 0
  file:
    description: File of the lease.
    type: path
    default: /run/psfleet.lease
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: See who else acts on the host
  psfleet.cluster.host_lease:
    state: queried
"""

RETURN = r"""
problem:
  returned: always
  type: str
  description: Why the lease could not be taken or renewed; empty if it could.
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.lease import LOST, Lease, give_back, read, renew, seconds_up, take, undo
from ..module_utils.module import make_module

ARGUMENTS: dict[str, Any] = {
    "state": {"choices": ["queried", "taken", "renewed", "released", "undone"], "required": True},
    "token": {"default": "", "no_log": True},
    "holder": {"default": ""},
    "looked": {"type": "float", "default": -1},
    "patience": {"type": "float", "default": 0},
    "file": {"type": "path", "default": "/run/psfleet.lease"},
}


def run(module: AnsibleModule) -> None:
    """Do what the state asks for, and exit with the answer."""
    state, token, file = module.params["state"], module.params["token"], Path(module.params["file"])
    problem = ""
    if state == "queried" or module.check_mode:
        problem = read(file).hindrance(token, seconds_up())
    elif state == "taken":
        mine = Lease(token, module.params["holder"])
        problem = take(file, mine, module.params["patience"], module.params["looked"])
    elif state == "renewed":
        problem = "" if renew(file, token) else LOST
    elif state == "undone":
        undo(file, token)
    else:
        give_back(file, token)
    module.exit_json(changed=False, problem=problem)


def main() -> None:
    """Run the module."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()

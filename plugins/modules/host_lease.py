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
    description: >-
      V(queried) only returns who has the lease, V(taken) takes it, V(renewed) extends it, and V(released) gives it
      back. V(undone) gives it back, too, and says that its holder has changed nothing.
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
    description: >-
      When the caller read the host's state, as the V(looked) that M(psfleet.cluster.trainer_tasks) returned. The lease
      is refused if another command may have changed the host since. -1 if the caller did not read the state.
    type: float
    default: -1
  patience:
    description: How many seconds V(taken) waits while another command has the lease.
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
  description: Why the lease could not be taken or renewed; with V(queried), who else has it. Empty if there is no problem.
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
    """Query, take, renew, give back or undo the lease; exit with `problem`, in words, "" if it succeeded.

    In check mode only query it.
    """
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
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module(ARGUMENTS))


if __name__ == "__main__":
    main()

"""Takes, renews or gives back the lease of a host, by which one playbook at a time changes it.

A lease that is not renewed expires. `cluster_lease` takes those of all hosts, and renews them until the
playbook ends.
"""

from __future__ import annotations

from pathlib import Path

from ..host.lease import LOST, Lease, give_back, read, renew, seconds_up, take, undo
from ..step import Step

OPTIONS = {
    "state": {
        "choices": ["queried", "taken", "renewed", "released", "undone"],
        "required": True,
        "description": "What to do with the lease. `undone` releases it without having changed anything.",
    },
    "token": {"default": "", "description": "A secret of its holder."},
    "holder": {"default": "", "description": "The person who takes it, as others see it."},
    "looked": {
        "type": "float",
        "default": -1,
        "description": "The `looked` of `trainer_tasks`; -1 without one.",
    },
    "patience": {"type": "float", "default": 0, "description": "Seconds to wait for it."},
    "file": {"type": "path", "default": "/run/psfleet.lease", "description": "File of the lease."},
}

RETURN = r"""
problem: {returned: always, type: str, description: "Why it could not be taken, or empty."}
"""


def run(step: Step) -> None:
    """Take the step."""
    state, token, file = step.params["state"], step.params["token"], Path(step.params["file"])
    problem = ""
    if state == "queried" or step.check_mode:
        problem = read(file).hinders(token, seconds_up())
    elif state == "taken":
        mine = Lease(token, step.params["holder"])
        problem = take(file, mine, step.params["patience"], step.params["looked"])
    elif state == "renewed":
        problem = "" if renew(file, token) else LOST
    elif state == "undone":
        undo(file, token)
    else:
        give_back(file, token)
    step.exit_json(changed=False, problem=problem)

"""Take, renew and give back the lease of a host, by which one playbook at a time acts there."""

from __future__ import annotations

from pathlib import Path

from ..module_utils.documented import documented_module
from ..module_utils.host.lease import LOST, Lease, give_back, read, renew, seconds_up, take, undo

DOCUMENTATION = {
    "module": "host_lease",
    "short_description": "Take, renew and give back the lease of this host",
    "description": "One playbook at a time changes a host. A lease that nobody renews ends by itself."
    " C(cluster_lease) takes those of all hosts, and renews them until the playbook ends.",
    "options": {
        "state": {
            "choices": ["queried", "taken", "renewed", "released", "undone"],
            "required": True,
            "description": "What becomes of the lease. C(undone) is C(released) by who has changed nothing.",
        },
        "token": {"default": "", "description": "What its holder alone knows."},
        "holder": {"default": "", "description": "Who takes it, for whoever else wants it."},
        "looked": {
            "type": "float",
            "default": -1,
            "description": "The moment that C(trainer_tasks) said; -1 where nobody has looked.",
        },
        "patience": {"type": "float", "default": 0, "description": "Seconds to wait for it."},
        "file": {"type": "path", "default": "/run/psfleet.lease", "description": "Where it is noted."},
    },
}

RETURN = r"""
problem: {returned: always, type: str, description: "Why it is not this holder's, empty where it is."}
"""


def main() -> None:
    """Run the module."""
    module = documented_module(DOCUMENTATION)
    state, token, file = module.params["state"], module.params["token"], Path(module.params["file"])
    problem = ""
    if state == "queried" or module.check_mode:
        problem = read(file).hinders(token, seconds_up())
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


if __name__ == "__main__":
    main()

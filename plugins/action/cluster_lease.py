"""Takes the leases of all hosts before a playbook changes them, so that only one playbook does at a time."""

import secrets
from typing import Any

from psfleet.run.person import person
from psfleet.watch.terminal import escaping_display

from ..plugin_utils.actions import HostAction
from ..plugin_utils.leases import Leases

display = escaping_display()

# All playbooks of a command share this token, so they do not exclude each other. It is drawn before Ansible
# forks.
TOKEN = secrets.token_hex(16)
# A playbook that is about to end gives its leases back within this time.
PATIENCE_SECONDS = 5.0
OTHERS = "Somebody else acts on the hosts. Nothing was changed: try again once that has ended."


class ActionModule(HostAction):
    """Takes the leases of `hosts`, or gives them back with the state "released"; returns {}.

    Fails, and holds no lease, if it cannot take all of them. Leases are renewed until they are given back, or
    until ansible-playbook ends. In check mode, it only warns of leases that others hold.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        hosts, looked = list(arguments["hosts"]), arguments.get("looked", {})
        holder = f"{person()} ({arguments.get('what', '')})"
        file = {"file": arguments["file"]} if "file" in arguments else {}
        leases = Leases(self, hosts, {**file, "token": TOKEN, "holder": holder})
        if arguments["state"] == "released":
            if not self._task.check_mode:
                leases.give_back()
        elif self._task.check_mode:
            for host, problem in leases.hindrances().items():
                display.warning(f"{host}: {problem}")
        elif problems := leases.take(looked, PATIENCE_SECONDS) if hosts else {}:
            lines = (f"- {host}: {problem}" for host, problem in problems.items())
            return self._failure("\n".join([OTHERS, *lines]))
        elif hosts:
            leases.keep()
        return {}

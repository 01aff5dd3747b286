"""Take the leases of all hosts before they are changed, so that one playbook at a time does that."""

import secrets
from typing import Any

from ansible.utils.display import Display

from psfleet.run.person import person

from ..plugin_utils.actions import HostAction
from ..plugin_utils.leases import Leases

display = Display()

# One for all playbooks of a command: they keep each other out of nothing. Made before Ansible forks.
TOKEN = secrets.token_hex(16)
# A playbook that has just ended gives its own back.
PATIENCE_SECONDS = 5.0
OTHERS = "Somebody else acts on the hosts. Nothing was changed: try again once that has ended."


class ActionModule(HostAction):
    """Arguments: `state`, `hosts`; `what` acts and `looked` (host -> that moment) to take them.

    Until they are `released`, or ansible-playbook ends, they are renewed. A check takes none, and warns of
    those that are held. `file` is the module's.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        hosts, looked = list(arguments["hosts"]), arguments.get("looked", {})
        holder = f"{person()} ({arguments.get('what', '')})"
        given = {name: arguments[name] for name in ("file",) if name in arguments}
        leases = Leases(self, hosts, {**given, "token": TOKEN, "holder": holder})
        if arguments["state"] == "released":
            if not self._task.check_mode:
                leases.give_back()
        elif self._task.check_mode:
            for host, problem in leases.hindered().items():
                display.warning(f"{host}: {problem}")
        elif problems := leases.take(looked, PATIENCE_SECONDS) if hosts else {}:
            lines = (f"- {host}: {problem}" for host, problem in problems.items())
            return self._failure("\n".join([OTHERS, *lines]))
        elif hosts:
            leases.keep()
        return {}

"""Collects from the variables of an Ansible task what is known of its host, for psfleet/deployment/."""

import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

from psfleet.deployment.host import Cluster, Host
from psfleet.deployment.templates import compile_templates
from psfleet.inventory.ansible_inventory import role_variables
from psfleet.inventory.variables import rules

# Ansible forks a process for each host and task, after it has imported the action. So what all hosts need is
# made here, once, and not in each of these processes.
role_variables()
compile_templates()


class RoleValues(dict[str, Any]):
    """Variable of a role -> the host's value, converted by its rule; a role's default if it is not set."""

    def __init__(self, action: ActionBase, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self._action, self._variables = action, variables
        self._known = role_variables()

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - variables have many types
        """Return a value that is needed for the first time."""
        entry = self._known[name]
        default = entry.get("default")
        default = trust_as_template(default) if isinstance(default, str) else default
        given = self._action._templar.template(self._variables.get(name, default))
        return self.setdefault(name, rules({name: entry})[name].convert(given))


def host_of(action: ActionBase, variables: Mapping[str, Any]) -> Host:
    """Return the host of an Ansible task with these variables."""
    cluster = Cluster(**{name: variables[f"cluster_{name}"] for name in Cluster.__dataclass_fields__})
    return Host(
        name=variables["inventory_hostname"],
        cluster=cluster,
        values=RoleValues(action, variables),
        facts=variables["ansible_facts"],
        environments=variables.get("__package_store_result", {}).get("environments", {}),
        signed=variables.get("__ssh_mesh_signed", {}),
        mesh_hosts=variables.get("__wireguard_mesh_known", {}).get("hosts", {}),
        now=time.time(),
    )

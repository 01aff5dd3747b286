"""Makes the connection to a host that is not the host of the Ansible task, from that host's variables."""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.playbook.play_context import PlayContext
from ansible.playbook.task import Task
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import become_loader, connection_loader, get_shell_plugin

# {variable: attribute of the play's context that has its value for the Ansible task's own host}. No other
# host gets these secrets.
SECRETS = {
    "ansible_password": "password",
    "ansible_ssh_pass": "password",
    "ansible_ssh_password": "password",
    "ansible_become_pass": "become_pass",
    "ansible_become_password": "become_pass",
}


def without_secrets(context: PlayContext, variables: Mapping[str, Any]) -> PlayContext:
    """Return a copy of an Ansible task's context, without the passwords in the `variables` of its host.

    Passwords that a person typed (--ask-pass, --ask-become-pass) stay: they are for all hosts.
    """
    copied = context.copy()
    for name in SECRETS.keys() & variables.keys():
        setattr(copied, SECRETS[name], None)
    return copied


def connection_to(
    variables: Mapping[str, Any], task: Task, context: PlayContext, ssh_options: Mapping[str, object]
) -> ConnectionBase:
    """Return the connection to a host that its `variables` and the Ansible task require; not opened yet.

    It uses the passwords in `context`. `ssh_options` have precedence over the variables; other connections
    than ssh ignore them. Raises AnsibleError if the connection plugin does not exist.
    """
    kind = variables.get("ansible_connection", task.connection)
    shell = get_shell_plugin(shell_type=context.shell, executable=context.executable)
    connection = connection_loader.get(kind, context, shell=shell)
    if connection is None:
        raise AnsibleError(f"the connection plugin '{kind}' was not found")
    become = None
    if boolean(variables.get("ansible_become", task.become) or False):
        become = become_loader.get(variables.get("ansible_become_method", task.become_method))
        connection.set_become_plugin(become)
    keys = {name: value for name, value in task.dump_attrs().items() if name != "retries"}
    keys["timeout"] = context.timeout
    keys |= {name: value for name in set(SECRETS.values()) if (value := getattr(context, name))}
    for plugin in filter(None, (connection, shell, become)):
        plugin.set_options(keys, variables)
    for name, value in ssh_options.items() if connection.transport == "ssh" else ():
        connection.set_option(name, value)
    return connection

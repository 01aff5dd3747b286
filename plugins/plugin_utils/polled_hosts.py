"""Polls hosts with a command again and again while an action works, without waiting for any of them."""

import copy
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import become_loader, connection_loader

from .shell_commands import run_command

# This many hosts per second together take about a tenth of a processor.
HOSTS_A_SECOND = 10
# The next poll tries again anyway, so ssh should neither wait longer than people would, nor retry.
PATIENCE = {"timeout": 10, "reconnection_retries": 0}
# Variable -> the attribute of the play's context that has it, also for the task's own host. No other host
# gets these secrets.
SECRETS = {
    "ansible_password": "password",
    "ansible_ssh_pass": "password",
    "ansible_ssh_password": "password",
    "ansible_become_pass": "become_pass",
    "ansible_become_password": "become_pass",
}


class Answer(NamedTuple):
    """The output of a host's command, or the problem; one of them is empty."""

    host: str
    printed: str
    problem: str = ""


class PolledHosts:
    """Runs a command on each host (host -> command) every `seconds`, or less often if there are many hosts.

    Each host has a thread, so that one that is down delays neither others nor the end of the process.
    """

    def __init__(self, action: ActionBase, commands: Mapping[str, str], seconds: float) -> None:
        """Start polling. Raises AnsibleError if the inventory lacks what a connection needs."""
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.seconds = max(seconds, len(commands) / HOSTS_A_SECOND)
        for place, (host, command) in enumerate(commands.items()):
            begin = self.seconds * place / len(commands)
            there = action_on(action, host, PATIENCE)
            threading.Thread(target=self._poll, args=(there, host, command, begin), daemon=True).start()

    def answers(self, wait: float = 0.0) -> Iterator[Answer]:
        """Yield the answers since the last call; if there are none, wait up to `wait` seconds for one."""
        if wait and self._answers.empty():
            with suppress(queue.Empty):
                yield self._answers.get(timeout=wait)
        while not self._answers.empty():
            yield self._answers.get()

    def _poll(self, there: ActionBase, host: str, command: str, begin: float) -> None:
        wait = threading.Event().wait
        wait(begin)
        while True:
            try:
                printed, errors = run_command(there, command)
                problem = "" if printed else errors.strip() or "it printed nothing"
                self._answers.put(Answer(host, printed, problem))
            except AnsibleError as error:
                self._answers.put(Answer(host, "", str(error)))
            wait(self.seconds)


def action_on(
    action: ActionBase, host: str, ssh_options: Mapping[str, object] = MappingProxyType({})
) -> ActionBase:
    """Return the action for another host. Raises AnsibleError if there is no way to connect to it.

    It has the variables of that host alone, not those of the play. `ssh_options` take precedence over them.
    """
    hostvars = action.variables["hostvars"]
    there = copy.copy(action)
    there.variables = {**hostvars.raw_get(host), "hostvars": hostvars}
    there._play_context = action._play_context.copy()
    for name in SECRETS.keys() & action.variables.keys():
        setattr(there._play_context, SECRETS[name], None)
    there._connection = _connection(there, hostvars[host])
    there._templar = action._templar.copy_with_new_env(available_variables=there.variables)
    for name, value in ssh_options.items() if there._connection.transport == "ssh" else ():
        there._connection.set_option(name, value)
    return there


def _connection(there: ActionBase, variables: Mapping[str, Any]) -> ConnectionBase:
    """Return the connection that the host's variables and the task require, with typed secrets."""
    task, context = there._task, there._play_context
    kind = variables.get("ansible_connection", task.connection)
    connection = connection_loader.get(kind, context)
    if connection is None:
        raise AnsibleError(f"the connection plugin '{kind}' was not found")
    if boolean(variables.get("ansible_become", task.become) or False):
        method = variables.get("ansible_become_method", task.become_method)
        connection.set_become_plugin(become_loader.get(method))
    keys = {name: value for name, value in task.dump_attrs().items() if name != "retries"}
    keys["timeout"] = context.timeout
    keys |= {name: value for name in set(SECRETS.values()) if (value := getattr(context, name))}
    for plugin in filter(None, (connection, connection._shell, connection.become)):
        plugin.set_options(keys, variables)
    return connection

"""Hosts beside an action's own that are asked a command again and again while it works."""

import copy
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress

from ansible.errors import AnsibleError
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.action import ActionBase

# So few together take a tenth of a processor.
HOSTS_A_SECOND = 10


class AskedHosts:
    """Asks each host its command (host -> command) every so many `seconds`; more slowly where they are many.

    Each has a thread: one that is down keeps no other waiting, nor the process that ends.
    """

    def __init__(self, action: ActionBase, commands: Mapping[str, str], seconds: float) -> None:
        """Begin. Raises AnsibleError where the inventory does not tell how a host is reached."""
        self._answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._seconds = max(seconds, len(commands) / HOSTS_A_SECOND)
        for place, (host, command) in enumerate(commands.items()):
            begin = self._seconds * place / len(commands)
            there = action_on(action, host)
            threading.Thread(target=self._ask, args=(there, host, command, begin), daemon=True).start()

    def heard(self) -> Iterator[tuple[str, str]]:
        """Return what was heard since: a host, and what its command printed."""
        while not self._answers.empty():
            yield self._answers.get()

    def _ask(self, there: ActionBase, host: str, command: str, begin: float) -> None:
        wait = threading.Event().wait
        wait(begin)
        while True:
            with suppress(AnsibleError):
                answer = there._low_level_execute_command(command, sudoable=True)
                self._answers.put((host, answer["stdout"]))
            wait(self._seconds)


def action_on(action: ActionBase, host: str) -> ActionBase:
    """Return the action as it would be on another host: with its connection, made as Ansible makes one."""
    variables = action.variables["hostvars"][host]
    templar = action._templar.copy_with_new_env(available_variables=variables)
    context = action._play_context.set_task_and_variable_override(action._task, variables, templar)
    executor = TaskExecutor(
        None, action._task, variables, context, action._loader, action._shared_loader_obj, None, None
    )
    kind = templar.template(variables.get("ansible_connection") or action._task.connection)
    executor._connection = executor._get_connection(variables, templar, kind)
    executor._set_connection_options(variables, templar)
    there = copy.copy(action)
    there._connection, there._play_context = executor._connection, context
    there._templar, there.variables = templar, {**action.variables, **variables}
    return there

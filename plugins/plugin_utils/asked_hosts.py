"""Hosts that are asked a command again and again while an action works, without waiting for any of them."""

import copy
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from ansible.errors import AnsibleError
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.action import ActionBase

# So few together take a tenth of a processor.
HOSTS_A_SECOND = 10
# A host is asked again anyway: ssh is neither to try for longer than people wait, nor again by itself.
PATIENCE = {"timeout": 10, "reconnection_retries": 0}


class Answer(NamedTuple):
    """What a host's command printed, or why there is none; the one is empty where the other is not."""

    host: str
    printed: str
    problem: str = ""


class AskedHosts:
    """Asks each host its command (host -> command) every so many `seconds`; more slowly where they are many.

    Each has a thread: one that is down keeps no other waiting, nor the process that ends.
    """

    def __init__(self, action: ActionBase, commands: Mapping[str, str], seconds: float) -> None:
        """Begin. Raises AnsibleError where the inventory does not tell how a host is reached."""
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.seconds = max(seconds, len(commands) / HOSTS_A_SECOND)
        for place, (host, command) in enumerate(commands.items()):
            begin = self.seconds * place / len(commands)
            there = action_on(action, host)
            if there._connection.transport == "ssh":
                for name, value in PATIENCE.items():
                    there._connection.set_option(name, value)
            threading.Thread(target=self._ask, args=(there, host, command, begin), daemon=True).start()

    def heard(self, wait: float = 0.0) -> Iterator[Answer]:
        """Return what was heard since; where that is nothing, wait so many seconds for the next."""
        if wait and self._answers.empty():
            with suppress(queue.Empty):
                yield self._answers.get(timeout=wait)
        while not self._answers.empty():
            yield self._answers.get()

    def _ask(self, there: ActionBase, host: str, command: str, begin: float) -> None:
        wait = threading.Event().wait
        wait(begin)
        while True:
            try:
                answer = there._low_level_execute_command(command, sudoable=True)
                problem = "" if answer["stdout"] else answer["stderr"].strip() or "it printed nothing"
                self._answers.put(Answer(host, answer["stdout"], problem))
            except AnsibleError as error:
                self._answers.put(Answer(host, "", str(error)))
            wait(self.seconds)


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

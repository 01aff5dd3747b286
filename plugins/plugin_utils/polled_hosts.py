"""Polls hosts with a command again and again while an action works, without waiting for any host."""

import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from ansible.errors import AnsibleError

from .actions import HostAction

# This many hosts per second together take about a tenth of a processor.
HOSTS_A_SECOND = 10
# Options of ssh. The next poll tries again anyway, so ssh should neither wait longer than people would, nor
# retry.
PATIENCE = {"timeout": 10, "reconnection_retries": 0}


class Answer(NamedTuple):
    """What a host answered: `printed`, the command's standard output, or `problem`. The other one is ""."""

    host: str
    printed: str
    problem: str = ""


class PolledHosts:
    """Runs a command on each host, {host: command}, every `seconds` seconds; less often for many hosts.

    Ten hosts a second are polled at most. Each host has its own thread, so that a host that is down delays
    neither other hosts nor the end of the process.
    """

    def __init__(self, action: HostAction, commands: Mapping[str, str], seconds: float) -> None:
        """Start polling, and return at once.

        Raises AnsibleError if a host's variables permit no connection.
        """
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self.seconds = max(seconds, len(commands) / HOSTS_A_SECOND)
        for place, (host, command) in enumerate(commands.items()):
            begin = self.seconds * place / len(commands)
            there = action.on(host, PATIENCE)
            threading.Thread(target=self._poll, args=(there, host, command, begin), daemon=True).start()

    def answers(self, wait: float = 0.0) -> Iterator[Answer]:
        """Yield the answers of all hosts since the last call, the oldest first.

        If there is none, wait up to `wait` seconds for the first one; yield nothing if none comes.
        """
        if wait and self._answers.empty():
            with suppress(queue.Empty):
                yield self._answers.get(timeout=wait)
        while not self._answers.empty():
            yield self._answers.get()

    def _poll(self, there: HostAction, host: str, command: str, begin: float) -> None:
        wait = threading.Event().wait
        wait(begin)
        while True:
            try:
                printed, errors = there.run_command(command)
                problem = "" if printed else errors.strip() or "it printed nothing"
                self._answers.put(Answer(host, printed, problem))
            except AnsibleError as error:
                self._answers.put(Answer(host, "", str(error)))
            wait(self.seconds)

"""The leases of several hosts, and a process that renews them as long as the playbook goes on."""

import os
import select
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ansible import constants

from trainer.contract.progress import printable

from ..module_utils.lease import LOST, SECONDS
from .actions import HostAction
from .asked_hosts import ANSWER_SECONDS, no_answer, results_in_time
from .reaching import ask

# A host that does not answer must not keep the others' leases from being renewed.
RENEW_SECONDS = SECONDS / 4
MOST_CHARACTERS = 300


def close_descriptors(*kept: int) -> None:
    """Close all inherited file descriptors except `kept`, so that the readers of their pipes see the end.

    Each closed number then leads to /dev/null, for code that still writes there.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):  # the listing's own descriptor is already closed
                os.dup2(nothing, descriptor, inheritable=False)


class Leases:
    """The leases of `hosts` for one command. If several commands want them at the same time, one gets all."""

    def __init__(self, action: HostAction, hosts: list[str], arguments: Mapping[str, object]) -> None:
        """Prepare the leases, without asking a host.

        `arguments` are those that the module `host_lease` gets on each host.
        """
        self._on = {host: action.on(host) for host in sorted(hosts)}
        self._arguments = dict(arguments)

    def take(self, looked: Mapping[str, float], patience: float) -> dict[str, str]:
        """Take the leases of all hosts, or none; return {host: problem in words}, {} if all were taken.

        `looked` is {host: when its state was read, by its own clock}; if a host was changed since, this is a
        problem. A host waits up to `patience` seconds for another command's lease.

        First try all hosts at once. If this fails, give back what was taken, and try one host after the
        other, in sorted order: of several commands, the one that gets the first shared host goes on.
        """
        hosts = [*self._on]
        at_once = {host: {"looked": moment} for host, moment in looked.items()}
        if not self._run_on_each("taken", hosts, at_once):
            return {}
        self._run_on_each("undone", hosts)
        patiently = {host: {**at_once.get(host, {}), "patience": patience} for host in hosts}
        for host in hosts:
            if problem := self._run_on_each("taken", [host], patiently):
                self._run_on_each("undone", hosts)
                return self.hindrances() | problem
        return {}

    def hindrances(self) -> dict[str, str]:
        """Return {host: who has its lease, in words} for the hosts whose lease another command has.

        Hosts that do not answer are in the result, too, with the reason. It only asks, and takes nothing.
        """
        return self._run_on_each("queried", [*self._on])

    def give_back(self) -> None:
        """Give back the leases that were taken; hosts that do not answer are ignored."""
        self._run_on_each("released", [*self._on])

    def keep(self) -> None:
        """Fork a process that renews the leases until this playbook ends, and then gives them back.

        Return at once, in the first process only.
        """
        playbook = os.pidfd_open(os.getppid())
        if os.fork():
            os.close(playbook)
            return
        with suppress(BaseException):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            close_descriptors(playbook)
            while not select.select([playbook], [], [], RENEW_SECONDS)[0]:
                problems = self._run_on_each("renewed", [*self._on])
                if len(problems) == len(self._on) and LOST in problems.values():
                    break  # do not give them back: this command may have taken them again
            else:
                self.give_back()
                # This folder belongs to the playbook that has ended; nobody else removes what was made there
                # since.
                shutil.rmtree(constants.DEFAULT_LOCAL_TMP, ignore_errors=True)
        os._exit(0)

    def _run_on_each(
        self, state: str, hosts: list[str], own: Mapping[str, Mapping[str, object]] | None = None
    ) -> dict[str, str]:
        """Run `host_lease` with this `state` on all `hosts` at once; return {host: problem in words}.

        Hosts without a problem are not in the result. `own` is {host: arguments only for this host}.
        """

        def done(host: str) -> str:
            arguments = {**self._arguments, **(own or {}).get(host, {}), "state": state}
            answer, problem = ask(self._on[host], "host_lease", arguments)
            return printable(problem or str(answer["problem"]))[:MOST_CHARACTERS]

        seconds = RENEW_SECONDS if state == "renewed" else ANSWER_SECONDS
        found = results_in_time(done, hosts, max(len(hosts), 1), seconds)
        problems = {host: found.get(host, no_answer("host_lease", seconds)) for host in hosts}
        return {host: problem for host, problem in problems.items() if problem}

"""The leases of several hosts, and a process that renews them for as long as the playbook goes on."""

import os
import select
import shutil
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ansible import constants

from trainer.contract.progress import printable
from trainer.host.lease import LOST, SECONDS

from .actions import HostAction
from .asked_hosts import action_on
from .reaching import ask

RENEW_SECONDS = SECONDS / 4
MOST_CHARACTERS = 300


def leave_descriptors(*kept: int) -> None:
    """Have this process hold nothing open of its caller's but these: who waits for an end of it hears that.

    Each number stays taken: what still writes there, writes to nobody.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):  # that of the listing has gone
                os.dup2(nothing, descriptor, inheritable=False)


class Leases:
    """The leases of `hosts` by a token. Of several who want the same hosts at once, one has all of its."""

    def __init__(self, action: HostAction, hosts: list[str], given: Mapping[str, object]) -> None:
        """Prepare. `given` is what the step `host_lease` is told everywhere."""
        self._on = {host: action_on(action, host) for host in sorted(hosts)}
        self._given = dict(given)

    def take(self, looked: Mapping[str, float], patience: float) -> dict[str, str]:
        """Take those of all hosts, or none; return what keeps which hosts from it.

        At once where nobody else wants them. Where somebody does, each may have some: all give those
        back, and wait for one host after the other, in one order. Who gets the first that is shared goes on.
        """
        hosts = [*self._on]
        at_once = {host: {"looked": moment} for host, moment in looked.items()}
        if not self._each("taken", hosts, at_once):
            return {}
        self._each("undone", hosts)
        patiently = {host: {**at_once.get(host, {}), "patience": patience} for host in hosts}
        for host in hosts:
            if problem := self._each("taken", [host], patiently):
                self._each("undone", hosts)
                return self.hindered() | problem
        return {}

    def hindered(self) -> dict[str, str]:
        """Return by whom which host is held."""
        return self._each("queried", [*self._on])

    def give_back(self) -> None:
        """End those that are had."""
        self._each("released", [*self._on])

    def keep(self) -> None:
        """Have a process of its own renew them while this playbook goes on, and give them back in the end."""
        playbook = os.pidfd_open(os.getppid())
        if os.fork():
            os.close(playbook)
            return
        with suppress(BaseException):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            leave_descriptors(playbook)
            while not select.select([playbook], [], [], RENEW_SECONDS)[0]:
                problems = self._each("renewed", [*self._on])
                if len(problems) == len(self._on) and LOST in problems.values():
                    break  # nothing is to be given back: this command may have taken them anew
            else:
                self.give_back()
                # Of the playbook that has ended; what was made there since, nobody else removes.
                shutil.rmtree(constants.DEFAULT_LOCAL_TMP, ignore_errors=True)
        os._exit(0)

    def _each(
        self, state: str, hosts: list[str], told: Mapping[str, Mapping[str, object]] | None = None
    ) -> dict[str, str]:
        """Have the hosts do it, all at once; return the problems of those that have one."""

        def done(host: str) -> str:
            arguments = {**self._given, **(told or {}).get(host, {}), "state": state}
            answer, problem = ask(self._on[host], "host_lease", arguments)
            return printable(problem or str(answer["problem"]))[:MOST_CHARACTERS]

        with ThreadPoolExecutor(max_workers=max(len(hosts), 1)) as pool:
            found = zip(hosts, pool.map(done, hosts), strict=True)
            return {host: problem for host, problem in found if problem}

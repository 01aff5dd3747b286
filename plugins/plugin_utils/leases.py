"""The leases of several hosts, and a process that renews them for as long as the playbook goes on."""

import os
import select
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from trainer.contract.progress import printable
from trainer.host.lease import LOST, SECONDS

from .actions import HostAction
from .asked_hosts import action_on
from .host_program import OURS
from .reaching import ask

RENEW_SECONDS = SECONDS / 4
MOST_CHARACTERS = 300


class Leases:
    """The leases of `hosts` by a token. The first host decides who of several has them all."""

    def __init__(self, action: HostAction, hosts: list[str], given: Mapping[str, object]) -> None:
        """Prepare. `given` is what the module `host_lease` is told everywhere."""
        self._on = {host: action_on(action, host) for host in sorted(hosts)}
        self._given = dict(given)

    def take(self, turns: Mapping[str, int], patience: float) -> dict[str, str]:
        """Take those of all hosts, or none; return what keeps which host from it."""
        first, *others = self._on
        told = {host: {"turn": turn, "patience": patience} for host, turn in turns.items()}
        problems = self._each("taken", [first], told) or self._each("taken", others, told)
        if problems:
            self.give_back()
        return problems

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
            while not select.select([playbook], [], [], RENEW_SECONDS)[0]:
                problems = self._each("renewed", [*self._on])
                if len(problems) == len(self._on) and LOST in problems.values():
                    break  # nothing is to be given back: this command may have taken them anew
            else:
                self.give_back()
        os._exit(0)

    def _each(
        self, state: str, hosts: list[str], told: Mapping[str, Mapping[str, object]] | None = None
    ) -> dict[str, str]:
        """Have the hosts do it, all at once; return the problems of those that have one."""

        def done(host: str) -> str:
            arguments = {**self._given, **(told or {}).get(host, {}), "state": state}
            answer, problem = ask(self._on[host], arguments, f"{OURS}host_lease")
            return printable(problem or str(answer["problem"]))[:MOST_CHARACTERS]

        with ThreadPoolExecutor(max_workers=max(len(hosts), 1)) as pool:
            found = zip(hosts, pool.map(done, hosts), strict=True)
            return {host: problem for host, problem in found if problem}

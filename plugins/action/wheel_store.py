"""Puts the wheels of the hosts' environments into a cache on the controller, packed for the hosts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.filled_environment import can_fill
from psfleet.carry.own_cache import own_cache
from psfleet.carry.wheel_stores import WheelStore
from psfleet.inventory.program_requirements import ProgramRequirements
from psfleet.watch.terminal import escaping_display

from ..module_utils.environments.environment import HostEnvironment
from ..plugin_utils.actions import ControllerAction

display = escaping_display()


class ActionModule(ControllerAction):
    """Returns `environments` and `programs`, which describe the wheels as `WheelStore.describe` does.

    The keys of `environments` are names of environments; the keys of `programs` are "KEY/NAME", the key of a
    program's requirements and the name of the program's environment. In check mode nothing is downloaded, so
    a missing archive has the hash "" and estimated sizes.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            installed = arguments.get("installed") or [() for _ in arguments["hosts"]]
            hosts = list(map(_Host.of, arguments["hosts"], installed))
            folder, cache = Path(arguments["locks"]), own_cache(arguments["cache_directory"])
            tensorboard = bool(arguments.get("tensorboard", False))
            stores = {
                environment.name: WheelStore.of(environment, folder, cache, tensorboard=tensorboard)
                for environment in dict.fromkeys(host.environment for host in hosts)
            }
            programs, stale = dict[str, dict[str, WheelStore]](), False
            for program in arguments.get("programs", ()):
                requirements = ProgramRequirements.read(Path(program["file"]))
                programs[requirements.key], resolved = self._of_program(requirements, hosts, stores, programs)
                stale |= resolved
            changed = self._fill(hosts, stores, programs)
            return {
                "changed": changed or stale,
                "environments": {name: store.describe() for name, store in stores.items()},
                "programs": {
                    f"{key}/{name}": store.describe()
                    for key, of_program in programs.items()
                    for name, store in of_program.items()
                },
            }
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error

    def _of_program(
        self,
        requirements: ProgramRequirements,
        hosts: Sequence["_Host"],
        stores: Mapping[str, WheelStore],
        others: Mapping[str, Mapping[str, WheelStore]],
    ) -> tuple[dict[str, WheelStore], bool]:
        """Return ({name of an environment: its store} for one program, whether a lock was resolved).

        `stores` are the hosts' own environments. `others` are the programs whose environments the hosts get
        before.
        """
        of_environments: dict[str, WheelStore] = {}
        stale = False
        for environment in dict.fromkeys(host.of_program(requirements) for host in hosts):
            having = [host for host in hosts if host.of_program(requirements) == environment]
            own = stores[having[0].environment.name]
            lock = own.program_lock(requirements, environment)
            stale |= not lock.is_current
            path = lock.resolve(display.display, keep=not self._task.check_mode)
            installed = set.intersection(*(set(host.installed) for host in having))
            earlier = [of[environment.name] for of in others.values() if environment.name in of]
            of_environments[environment.name] = own.program_store(lock, path, sorted(installed), earlier)
        return of_environments, stale

    def _fill(
        self,
        hosts: Sequence["_Host"],
        stores: Mapping[str, WheelStore],
        programs: Mapping[str, Mapping[str, WheelStore]],
    ) -> bool:
        """Make the archives that hosts need and are missing, unless this is check mode.

        Return whether any was missing. A host with an environment does not need the environment's archive.
        """
        wanted = [(stores[host.environment.name], host) for host in hosts]
        wanted += [(of[host.programs[key]], host) for key, of in programs.items() for host in hosts]
        needed = [store for store, host in wanted if store.lock_hash not in host.installed]
        hosts_of = Counter(store.folder for store in needed)
        by_folder = {store.folder: store for store in needed}
        lacking = [store for store in by_folder.values() if not store.archive.exists()]
        # A single host installs just as fast by itself. Environments with CUDA were not tried.
        unfilled = [
            store
            for store in by_folder.values()
            if hosts_of[store.folder] > 1
            and not store.removed
            and store.environment.device == "cpu"
            and can_fill(store.environment)
            and not store.packed_environment.exists()
        ]
        if not self._task.check_mode:
            for store in lacking:
                store.fill(display.display)
            for store in unfilled:
                store.fill_environment(display.display)
        return bool(lacking) or any(store.packed_environment.exists() for store in unfilled)


@dataclass(frozen=True)
class _Host:
    """A host: its environment, the names of the programs' environments by key, and the hashes that it has."""

    environment: HostEnvironment
    programs: Mapping[str, str] = field(default_factory=dict)
    installed: Sequence[str] = ()

    @classmethod
    def of(cls, answer: Mapping[str, Any], installed: Sequence[str]) -> "_Host":
        """Return the host with this answer, a fact `psfleet_requirements`."""
        return cls(HostEnvironment.parse(answer["environment"]), answer.get("programs", {}), installed)

    def of_program(self, requirements: ProgramRequirements) -> HostEnvironment:
        """Return the environment of a program. Raises ValueError if the host's answer is none that fits."""
        own, found = self.environment, HostEnvironment.parse(self.programs.get(requirements.key, ""))
        wanted = HostEnvironment(own.device, found.python, own.machine, requirements.tensorflow)
        if found != wanted or found.python not in requirements.pythons:
            raise ValueError(
                f"a host of {own.name} names {found.name} for {requirements.file}, which does not fit"
            )
        return found

"""Puts the wheels of the hosts' environments into a cache on the controller, packed for the hosts."""

from collections import Counter
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.carry.filled_environment import can_fill
from psfleet.carry.own_cache import own_cache
from psfleet.carry.wheel_stores import WheelStore
from psfleet.watch.terminal import escaping_display

from ..module_utils.environments.environment import HostEnvironment
from ..plugin_utils.actions import ControllerAction

display = escaping_display()


class ActionModule(ControllerAction):
    """Returns `environments`, {name: what `WheelStore.describe` returned, and the same of `program`}.

    In check mode, an archive that does not exist has no hash, and estimated sizes.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            folder, cache = Path(arguments["locks"]), own_cache(arguments["cache_directory"])
            tensorboard = bool(arguments.get("tensorboard", False))
            stores = {
                name: WheelStore.of(HostEnvironment.parse(name), folder, cache, tensorboard=tensorboard)
                for name in sorted(set(arguments["environments"]))
            }
            programs, stale = {}, []
            if requirements := [Path(path) for path in arguments.get("program_requirements", ())]:
                locks = {name: store.program_lock(*requirements) for name, store in stores.items()}
                stale = [lock for lock in locks.values() if not lock.is_current]
                for name, lock in locks.items():
                    resolved = lock.resolve(display.display, keep=not self._task.check_mode)
                    programs[name] = stores[name].program_store(resolved)
            wanted = [*stores.values(), *(store for store in programs.values() if store)]
            lacking = [store for store in wanted if not store.archive.exists()]
            # A single host installs just as fast by itself. Environments with CUDA were not tried.
            unfilled = [
                store
                for name, hosts in Counter(arguments["environments"]).items()
                for store in [stores[name]]
                if hosts > 1 and store.environment.device == "cpu" and can_fill(store.environment)
                if not store.packed_environment.exists()
            ]
            if not self._task.check_mode:
                for store in lacking:
                    store.fill(display.display)
                for store in unfilled:
                    store.fill_environment(display.display)
            described = {
                name: store.describe() | {"program": program.describe() if program else {}}
                for name, store in stores.items()
                for program in [programs.get(name)]
            }
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        filled = [store for store in unfilled if store.packed_environment.exists()]
        return {"changed": bool(lacking or filled or stale), "environments": described}

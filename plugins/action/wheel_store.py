"""Have the wheels of the hosts' environments on the controller, in a cache, packed for the hosts."""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from psfleet.carry.wheel_stores import WheelStore
from trainer.host.environment import HostEnvironment

display = Display()


class ActionModule(ActionBase):
    """Arguments: `environments` (names of those that hosts need), `locks` (their folder), `cache_directory`.

    With `tensorboard: true` they are those of TensorBoard, which is in an environment of its own.
    With `program_requirements`, the path of a user's requirements.txt, also what it needs beside the lock.

    Runs on the controller alone. Returns `environments`: for each name `python_version`, `lock_hash`,
    `archive`, `archive_sha256`, `archive_bytes`, `environment_bytes` (the disk that the installation takes)
    and `program`: {}, or the same of the wheels that the program adds. In check mode nothing is downloaded,
    and an archive that is not there yet has no hash, and sizes as they usually are; what the program requires
    is resolved all the same: a deployment installs what the check has said.
    """

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return where the archives are; make them first where they are not there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        try:
            stores = self._stores()
            programs = {name: store.extended(self._requirements) for name, store in stores.items()}
            wanted = [*stores.values(), *(store for store in programs.values() if store)]
            lacking = [store for store in wanted if not store.archive.exists()]
            if not self._task.check_mode:
                for store in lacking:
                    store.fill(display.display)
            described = {
                name: store.describe() | {"program": program.describe() if program else {}}
                for (name, store), program in zip(stores.items(), programs.values(), strict=True)
            }
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        return result | {"changed": bool(lacking), "environments": described}

    @property
    def _requirements(self) -> Path:
        return Path(self._task.args.get("program_requirements") or "")

    def _stores(self) -> dict[str, WheelStore]:
        arguments = self._task.args
        locks, cache = Path(arguments["locks"]), Path(arguments["cache_directory"]).expanduser()
        tensorboard = bool(arguments.get("tensorboard", False))
        return {
            name: WheelStore.of(HostEnvironment.parse(name), locks, cache, tensorboard=tensorboard)
            for name in sorted(set(arguments["environments"]))
        }

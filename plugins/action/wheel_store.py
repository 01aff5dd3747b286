"""Have the wheels of a lock on the controller, in a cache, packed for the hosts."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.locks import read_locks
from plugins.module_utils.content_directory import HASH_DIGITS, file_sha256, locked
from plugins.program_lock import ProgramLock
from plugins.wheels import MEGABYTE, obtain, pack, require_own_modules, unpacked_bytes

display = Display()

LOCK_TIMEOUT_SECONDS = 1800
# Byte code, and the blocks of small files, beside what the wheels hold.
BYTES_PER_UNPACKED_BYTE = 1.6
SPARE_BYTES = 20 * MEGABYTE


class ActionModule(ActionBase):
    """Arguments: `requirements` and `installer` (locks), `python_version`, `cache_directory`.

    With `program_requirements`, the path of a user's requirements.txt, also what it needs beside the lock.

    Runs on the controller alone. Returns `lock_hash`, `archive`, `archive_sha256` and `archive_bytes`, and
    `program`: {}, or the same of the wheels that the program adds, with `environment_bytes`, the disk that
    they take. In check mode nothing is downloaded, and an archive that is not there yet has neither hash nor
    size; what the program requires is resolved all the same: a deployment installs what the check has said.
    """

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return where the archives are; make them first where they are not there."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = self._task.args
        store = WheelStore(
            requirements=Path(arguments["requirements"]),
            installer=Path(arguments["installer"]),
            python_version=str(arguments["python_version"]),
            cache=Path(arguments["cache_directory"]).expanduser(),
        )
        try:
            program = store.extended(Path(arguments.get("program_requirements") or ""))
            stores = [store, program] if program else [store]
            lacking = [each for each in stores if not each.archive.exists()]
            if not self._task.check_mode:
                for each in lacking:
                    each.fill(display.display)
            described = store.describe() | {"program": program.describe() if program else {}}
        except (OSError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        return result | {"changed": bool(lacking)} | described


@dataclass(frozen=True)
class WheelStore:
    """The wheels of one lock in a cache that several clones share.

    With `base`, another lock, they are those that are added to an environment of it.
    """

    requirements: Path
    installer: Path
    python_version: str
    cache: Path
    base: Path | None = None

    @property
    def lock_hash(self) -> str:
        """The first 12 hex digits of the SHA-256 of all locks: it names the environment, too."""
        locks = [self.requirements, self.installer, *([self.base] if self.base else [])]
        content = b"".join(lock.read_bytes() for lock in locks)
        return hashlib.sha256(content).hexdigest()[:HASH_DIGITS]

    @property
    def folder(self) -> Path:
        """Where the finished archive is."""
        return self.cache / "wheels" / self.lock_hash

    @property
    def archive(self) -> Path:
        """The finished archive: it is there entire, or not at all."""
        return self.folder / f"wheels-{self.lock_hash}.tar"

    def extended(self, requirements: Path) -> WheelStore | None:
        """Return the store of what a user's requirements add to this one; None where they add nothing.

        Raises ValueError where they are refused or cannot be resolved.
        """
        if requirements == Path():
            return None
        lock = ProgramLock(requirements, self.requirements, self.python_version, self.cache).resolve()
        if not lock.read_bytes():
            return None
        return WheelStore(lock, self.installer, self.python_version, self.cache, base=self.requirements)

    def describe(self) -> dict[str, Any]:
        """Return what the other roles need to know."""
        known = self.archive.exists()
        digest = self.archive.with_suffix(".sha256")
        described: dict[str, Any] = {
            "lock_hash": self.lock_hash,
            "archive": str(self.archive),
            "archive_sha256": digest.read_text(encoding="utf-8").strip() if known else "",
            "archive_bytes": self.archive.stat().st_size if known else 0,
        }
        if self.base:
            unpacked = unpacked_bytes(self.archive) if known else 0
            described["environment_bytes"] = int(BYTES_PER_UNPACKED_BYTE * unpacked) + SPARE_BYTES
        return described

    def fill(self, say: Callable[[str], None]) -> None:
        """Download, verify and pack the wheels. What an interrupted download has left is used again.

        Raises ValueError where a wheel cannot be had or is not the locked one, OSError where the disk fails.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_suffix(".partial")
        with locked(self.folder.parent / f".{self.lock_hash}.lock", LOCK_TIMEOUT_SECONDS):
            if self.archive.exists():  # another clone was faster
                return
            packages = read_locks([self.requirements, self.installer])
            pool = self.folder.parent / "pool"
            wheels = obtain(packages, self.python_version, partial, pool, say)
            if self.base:
                require_own_modules(wheels)
            finished = partial / "finished"
            finished.mkdir(exist_ok=True)
            archive = finished / self.archive.name
            pack(wheels, self.requirements, archive)
            archive.with_suffix(".sha256").write_text(f"{file_sha256(archive)}\n", encoding="utf-8")
            finished.rename(self.folder)
            shutil.rmtree(partial)

"""The wheels of one environment in a cache on the controller, packed as one archive for its hosts."""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psfleet.carry.filled_environment import fill_and_pack
from psfleet.carry.locks import Pinned, read_locks, stated
from psfleet.carry.long_step import MEGABYTE, told
from psfleet.carry.program_lock import ProgramLock
from psfleet.carry.wheel_archive import SPARE_BYTES, installed_bytes, pack
from psfleet.carry.wheels import fitting, obtain, require_own_modules, size_below
from trainer.host.content_directory import HASH_DIGITS, file_sha256, locked
from trainer.host.disk_space import lacking_space, readable
from trainer.host.environment import HostEnvironment

# Gigabytes may be downloaded meanwhile. The lock goes with the process that holds it.
LOCK_TIMEOUT_SECONDS = 4 * 3600
# Of an archive that is not there yet, and of the environment that is made from it, by its device.
USUAL_BYTES = {
    "cpu": (375 * MEGABYTE, 1700 * MEGABYTE),
    "gpu": (3480 * MEGABYTE, 6750 * MEGABYTE),
    "gpu-system": (675 * MEGABYTE, 2300 * MEGABYTE),
}
USUAL_BYTES_OF_TENSORBOARD = (80 * MEGABYTE, 200 * MEGABYTE)


@dataclass(frozen=True)
class WheelStore:
    """The wheels of an environment's locks, in a cache that several clones share.

    With `base`, other locks, they are those that are added to an environment of it. `usual_bytes` are the
    sizes of the archive and of the environment, as far as they are known before there is an archive.
    """

    environment: HostEnvironment
    locks: tuple[Path, ...]
    installer: Path
    cache: Path
    base: tuple[Path, ...] = ()
    usual_bytes: tuple[int, int] = (0, SPARE_BYTES)

    @classmethod
    def of(
        cls, environment: HostEnvironment, locks: Path, cache: Path, *, tensorboard: bool = False
    ) -> "WheelStore":
        """Return the store of an environment whose locks are in a folder, or of TensorBoard's beside it."""
        names = (environment.tensorboard_lock,) if tensorboard else environment.locks
        return cls(
            environment=environment,
            locks=tuple(locks / name for name in names),
            installer=locks / "installer.txt",
            cache=cache,
            usual_bytes=USUAL_BYTES_OF_TENSORBOARD if tensorboard else USUAL_BYTES[environment.device],
        )

    @property
    def lock_hash(self) -> str:
        """The first 12 hex digits of a SHA-256 of all that says which wheels: it names the environment, too.

        Hosts of several Pythons and processors have the same locks, and other wheels.
        """
        content = "".join(stated(lock) for lock in (*self.locks, self.installer, *self.base))
        content += f"python{self.environment.python} {self.environment.machine}"
        return hashlib.sha256(content.encode()).hexdigest()[:HASH_DIGITS]

    @property
    def folder(self) -> Path:
        """Where the finished archive is."""
        return self.cache / "wheels" / self.lock_hash

    @property
    def archive(self) -> Path:
        """The finished archive: it is there entire, or not at all."""
        return self.folder / f"wheels-{self.lock_hash}.tar"

    @property
    def filled(self) -> Path:
        """The environment that was filled from it here, packed: it is there entire, or not at all."""
        return self.folder / f"environment-{self.lock_hash}.tar.zst"

    def program_lock(self, requirements: Path, *others: Path) -> ProgramLock:
        """Return the lock of what a user's files of requirements add to this one together."""
        return ProgramLock(requirements, self.locks, self.environment, self.cache, others)

    def extended(self, lock: Path) -> "WheelStore | None":
        """Return the store of what such a lock adds to this one; None where it adds nothing."""
        if not stated(lock):
            return None
        return WheelStore(self.environment, (lock,), self.installer, self.cache, base=self.locks)

    def describe(self) -> dict[str, Any]:
        """Return what the other roles need to know; of an archive that is not there yet, its usual size."""
        digest, (archive_bytes, environment_bytes) = "", self.usual_bytes
        carried = self.filled if self.filled.exists() else self.archive
        if carried.exists():
            digest = carried.with_suffix(".sha256").read_text(encoding="ascii").strip()
            archive_bytes = carried.stat().st_size
            environment_bytes = int(carried.with_suffix(".environment_bytes").read_text(encoding="ascii"))
        return {
            "lock_hash": self.lock_hash,
            "python_version": self.environment.python,
            "filled": carried == self.filled,
            "archive": str(carried),
            "archive_sha256": digest,
            "archive_bytes": archive_bytes,
            "environment_bytes": environment_bytes,
        }

    def fill(self, say: Callable[[str], None]) -> None:
        """Download, verify and pack the wheels. What an interrupted download has left is used again.

        Raises ValueError where a wheel cannot be had or is not the locked one, OSError where the disk fails.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        partial = self.folder.with_suffix(".partial")
        with self._alone(say):
            if self.archive.exists():  # another clone was faster
                return
            packages = read_locks([*self.locks, self.installer])
            self._require_space(packages, partial)
            wheels = obtain(packages, self.environment, partial, self._pool, say)
            if self.base:
                require_own_modules(wheels)
            self._pack(wheels, partial / "finished", say)
            (partial / "finished").rename(self.folder)
            shutil.rmtree(partial)

    def fill_environment(self, say: Callable[[str], None]) -> None:
        """Fill the environment here, and pack it for hosts in place of the wheels.

        Raises ValueError where a step fails, OSError where the disk does.
        """
        with self._alone(say):
            if self.filled.exists():
                return
            usual = (
                self.usual_bytes[0] + 2 * self.usual_bytes[1]
            )  # the wheels unpacked, installed, and packed
            if lacking := lacking_space((self.folder, usual)):
                say(f"  {self.environment.name} is not installed here, but on each host: {lacking}")
                return
            partial = self.folder / f".{self.filled.name}"
            with told(say, lambda: f"install {self.environment.name} once, for all hosts that get it"):
                size = fill_and_pack(self.archive, self.environment, partial)
                digest = file_sha256(partial)
            self._note(self.filled, digest, size)
            partial.rename(self.filled)

    @contextmanager
    def _alone(self, say: Callable[[str], None]) -> Iterator[None]:
        """Wait until no other deployment makes what is made here."""
        with ExitStack() as stack:
            with told(say, lambda: f"wait for another deployment that makes {self.archive}"):
                stack.enter_context(
                    locked(self.folder.parent / f".{self.lock_hash}.lock", LOCK_TIMEOUT_SECONDS)
                )
            yield

    def _note(self, archive: Path, digest: str, environment_bytes: int) -> None:
        """Write beside an archive what no deployment should read gigabytes to know."""
        archive.with_suffix(".sha256").write_text(f"{digest}\n", encoding="ascii")
        archive.with_suffix(".environment_bytes").write_text(f"{environment_bytes}\n", encoding="ascii")

    @property
    def _pool(self) -> Path:
        return self.folder.parent / "pool"

    def _require_space(self, packages: Mapping[str, Pinned], partial: Path) -> None:
        archive_bytes = self.usual_bytes[0]
        wheels = fitting(self._pool.glob("*.whl"), packages, self.environment)
        to_download = max(0, archive_bytes - sum(wheel.stat().st_size for wheel in wheels))
        # pip keeps a second copy until the archive is made, to go on with where it is interrupted: what an
        # interrupted download has left there, to be used again or removed first, is not needed again.
        left = size_below(partial / "cache") + size_below(partial / "temporary")
        needed = archive_bytes + max(0, 2 * to_download - left)
        if lacking := lacking_space((self.folder.parent, needed)):
            raise ValueError(
                f"Too little space on this machine for the wheels of {self.environment.name}: {lacking}. "
                "Nothing was downloaded. Free some, or name another place: package_store_cache_directory or "
                "PSFLEET_CACHE"
            )

    def _pack(self, wheels: Path, folder: Path, say: Callable[[str], None]) -> None:
        folder.mkdir(exist_ok=True)
        archive = folder / self.archive.name
        size = sum(wheel.stat().st_size for wheel in wheels.glob("*.whl"))
        lock = "".join(stated(lock) for lock in self.locks)
        with told(say, lambda: f"packed {readable(archive.stat().st_size)} of {readable(size)}"):
            digest = pack(wheels, lock, archive)
        installed = [wheel for wheel in wheels.glob("*.whl") if not wheel.name.startswith("uv-")]
        self._note(archive, digest, installed_bytes(installed))
